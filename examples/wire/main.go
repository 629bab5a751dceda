package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/materpc/materpc/registry/local"
)

func main() {
	config := Config{}
	flag.StringVar(&config.Address, "addr", "127.0.0.1:0", "address to serve on")
	directory := flag.String("registry", "", "directory of the local registry; default: the user's")
	flag.StringVar(&config.Hello, "hello", "discovery:///hello", "target of the hello service")
	flag.Parse()
	if err := run(config, local.Directory(*directory)); err != nil {
		fmt.Fprintln(os.Stderr, "front:", err)
		os.Exit(1)
	}
}

// Config is what the command line says.
type Config struct {
	Address string
	Hello   string
}

// run serves until a signal has stopped it.
func run(config Config, directory local.Directory) error {
	application, cleanup, err := wireApp(config, directory)
	if err != nil {
		return err
	}
	defer cleanup()
	return application.Run()
}
