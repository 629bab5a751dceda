package grpc

import "fmt"

func Example_chains() {
	fmt.Println("client:")
	for _, name := range clientLayerNames() {
		fmt.Println("  " + name)
	}
	fmt.Println("server:")
	for _, name := range serverLayerNames() {
		fmt.Println("  " + name)
	}
	// Output:
	// client:
	//   call
	//   timeout
	//   user
	//   attempts
	//   metadata
	//   attempt interceptors
	//   pick
	//   grpc-go
	// server:
	//   gate
	//   call
	//   recovery
	//   deadline
	//   errors
	//   middlewares
	//   interceptors
	//   handler
}
