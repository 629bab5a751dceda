package health_test

import (
	"context"
	"fmt"

	"github.com/materpc/materpc/health"
)

func ExampleState() {
	st := health.New()
	st.Register("helloworld.v1.Greeter")
	st.Set("helloworld.v1.Greeter", health.NotServing) // the application's word
	if err := st.AddCheck("db", func(context.Context) error { return nil }); err != nil {
		fmt.Println(err)
	}

	fmt.Println(st.Check(""))
	st.SetPhase(health.Ready) // the lifecycle's word
	fmt.Println(st.Check(""))
	fmt.Println(st.Check("helloworld.v1.Greeter"))
	fmt.Println(st.Check("nope"))
	// Output:
	// NOT_SERVING true
	// SERVING true
	// NOT_SERVING true
	// SERVICE_UNKNOWN false
}
