package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// config is what the flags say.
type config struct {
	duration time.Duration
	rate     int
	window   time.Duration
	rtt      time.Duration
	servers  int
	registry string
	json     bool
}

// parseConfig reads the flags of the parent. All faults come in one error; help
// is written to out.
func parseConfig(args []string, out io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error, once
	flags.DurationVar(&c.duration, "duration", 15*time.Second, "how long the load lasts")
	flags.IntVar(&c.rate, "rate", 500, "calls a second; one in ten is a stream of about a second")
	flags.DurationVar(&c.window, "window", 300*time.Millisecond, "how long a leaving server still serves; 0 makes callers meet the drain")
	flags.DurationVar(&c.rtt, "rtt", 10*time.Millisecond, "round trip between caller and servers; 0 is plain loopback")
	flags.IntVar(&c.servers, "servers", 3, "size of the fleet")
	flags.StringVar(&c.registry, "registry", "", "`name` of a registry to share: local, local:///DIR or a path (default: a directory of its own)")
	flags.BoolVar(&c.json, "json", false, "print one JSON object on the last line of standard output")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out, "A fleet through rolling restarts, without one failed call.")
			flags.SetOutput(out)
			flags.PrintDefaults()
			return c, err
		}
		return c, fmt.Errorf("%w; -h lists the flags", err)
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q; -h lists the flags", flags.Arg(0))
	}
	return c, c.validate()
}

func (c config) validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(c.duration >= 3*time.Second, "-duration is %v; give at least 3s, or there is no time for a restart", c.duration)
	check(c.rate >= 1 && c.rate <= 10_000, "-rate is %d; give 1 to 10000 calls a second", c.rate)
	check(c.window >= 0 && c.window <= 10*time.Second, "-window is %v; give 0 to 10s", c.window)
	check(c.rtt >= 0 && c.rtt <= time.Second, "-rtt is %v; give 0 to 1s", c.rtt)
	check(c.servers >= 2 && c.servers <= 20, "-servers is %d; give 2 to 20: with one, nobody serves while it restarts", c.servers)
	return errors.Join(faults...)
}
