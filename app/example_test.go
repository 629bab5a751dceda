package app_test

import (
	"context"
	"fmt"

	"github.com/materpc/materpc/app"
)

// nothing is a transport.Server without a transport.
type nothing struct{}

func (nothing) Start(context.Context) error { return nil }
func (nothing) Stop(context.Context) error  { return nil }

// The steps of the start and the stop, in their order.
func ExampleApp() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a := app.New(
		app.Context(ctx),
		app.Name("greeter"),
		app.Server(nothing{}),
		app.Events(func(e app.Event) {
			if e.Kind == app.StepBegan {
				fmt.Println(e.Step)
			}
			if e.Kind == app.StepEnded && e.Step == "ready" {
				fmt.Println("--")
				stop()
			}
		}),
	)
	fmt.Println(a.Run())
	// Output:
	// validate
	// bind
	// before-start hooks
	// serve
	// register
	// after-start hooks
	// ready
	// --
	// not ready
	// before-stop hooks
	// deregister
	// propagation window
	// stop servers
	// after-stop hooks
	// stopped
	// <nil>
}
