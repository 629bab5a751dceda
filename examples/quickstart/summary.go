package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// summary is what the run came to. Its JSON names are part of the contract; the
// doc comment of the command says what they mean.
type summary struct {
	Calls    int     `json:"calls"`
	Streams  int     `json:"streams"`
	Failed   int     `json:"failed"`
	Lost     int     `json:"lost"`
	Repicked int     `json:"repicked"`
	Restarts int     `json:"restarts"`
	Killed   int     `json:"killed"`
	Servers  int     `json:"servers"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`

	config      config
	took        time.Duration
	skipped     int
	interrupted bool
	lives       []life
	answers     map[string]int
	faults      []string
}

func summarize(c config, t *tally, plot *script, took time.Duration, skipped int) *summary {
	n, answers := t.now()
	return &summary{
		Calls: n.calls, Streams: n.streams, Failed: n.failed, Lost: n.lost, Repicked: n.repicked,
		Restarts: plot.restarts, Killed: plot.kills, Servers: c.servers,
		P50: milliseconds(t.quantile(0.50)), P99: milliseconds(t.quantile(0.99)),
		config: c, took: took, skipped: skipped, answers: answers, faults: t.explanations(),
	}
}

// milliseconds with one digit, which is what the histogram is good for.
func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*10) / 10
}

// verdict is an error when calls failed.
func (s *summary) verdict() error {
	if s.Failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d calls failed:\n  %s", s.Failed, s.Calls, strings.Join(s.faults, "\n  "))
}

// writeJSON writes the one line for machines.
func (s *summary) writeJSON(out io.Writer) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintf(out, "%s\n", text); err != nil {
		return errors.Join(errors.New("the summary could not be written"), err)
	}
	return nil
}

// text is the summary for people.
func (s *summary) text(colour bool) string {
	var text strings.Builder
	s.table(&text)
	fmt.Fprintf(&text, "\n%s calls, %s of them streams; the last one ended after %.1f s. Half of the unary calls took %.0f ms\n"+
		"or less, 99 %% at most %.0f ms: of that %d are the handler's and %d the simulated way.\n\n",
		thousands(s.Calls), thousands(s.Streams), s.took.Seconds(), s.P50, s.P99, work.Milliseconds(), s.config.rtt.Milliseconds())
	row := func(n int, paint, word, meaning string) {
		count := fmt.Sprintf("%7s  %-10s", thousands(n), word)
		if colour && paint != "" {
			count = paint + count + plain
		}
		fmt.Fprintf(&text, "%s %s\n", count, meaning)
	}
	verdict := green
	if s.Failed > 0 {
		verdict = red
	}
	row(s.Failed, verdict, "failed", fmt.Sprintf("through %s with SIGTERM, without a retry policy", plural(s.Restarts, "restart")))
	row(s.Repicked, green, "re-picked", "refused by a server that was leaving, before their handler ran; served by another")
	row(s.Lost, "", "lost", "were inside the killed process and got no answer: nobody can know whether they ran,\n"+
		"                    so nothing sends them again unless a policy says so")
	if s.skipped > 0 {
		row(s.skipped, red, "not made", "this machine was too slow for -rate, and callers do not pile up here")
	}
	text.WriteString(s.next())
	return text.String()
}

// table shows what became of each process.
func (s *summary) table(text *strings.Builder) {
	lives := slices.Clone(s.lives)
	slices.SortStableFunc(lives, func(a, b life) int { return a.slot - b.slot })
	fmt.Fprintf(text, "  %-12s %14s   %s\n", "process", "calls answered", "its end")
	for _, l := range lives {
		fmt.Fprintf(text, "  %-12s %14s   %s\n", l.id, thousands(s.answers[l.id]), l.fate)
	}
}

// next says what to try.
func (s *summary) next() string {
	switch {
	case s.interrupted:
		return "\nInterrupted: the servers have left in order.\n"
	case s.Failed > 0:
		return "\nThat should not happen. Please report it with the lines below.\n"
	case s.config.window > 0:
		return "\nServers kept serving for " + s.config.window.String() + " after they left the registry, so hardly a caller met a closed door.\n" +
			"Try -window 0: callers then meet the drain, and moving on has to carry it.\n"
	}
	return "\nWithout a window callers do meet servers that leave: the gate refuses with a proof, the client moves on.\n" +
		"Read examples/quickstart/calls.go: nothing in there knows of it.\n"
}

// Colours of a terminal.
const (
	green = "\x1b[32m"
	red   = "\x1b[1;31m"
	plain = "\x1b[0m"
)

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// thousands groups digits: 7,431.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
