package selector_test

import (
	"context"
	"fmt"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	kselector "github.com/go-kratos/kratos/v2/selector"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/chash"
	"github.com/materpc/materpc/selector/p2c"
	"github.com/materpc/materpc/selector/wrr"
)

// A strategy in a balancer of one's own.
func Example() {
	now := int64(1) // monotonic nanoseconds
	in, err := selector.FromService(&kregistry.ServiceInstance{ID: "1", Name: "greeter"}, "grpc", "10.0.0.1:9000")
	if err != nil {
		fmt.Println(err)
	}
	node := selector.NewNode(in, now)
	node.SetReady(true)

	picker := p2c.Strategy().Build([]*selector.Node{node}, nil)
	picked := picker.Pick(&selector.Request{Now: now})
	picked.Begin(now, selector.Unary)
	picked.End(now+5_000_000, now, selector.Unary, selector.Success)
	fmt.Println(picked.Instance().Address, picked.Stats().Latency/1e6, "ms")
	// Output: 10.0.0.1:9000 5 ms
}

// Any strategy as a Kratos selector.
func ExampleNewBuilder() {
	s := selector.NewBuilder(wrr.Strategy()).Build()
	s.Apply([]kselector.Node{kselector.NewNode("grpc", "10.0.0.1:9000", nil)})
	node, done, err := s.Select(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	done(context.Background(), kselector.DoneInfo{})
	fmt.Println(node.Address())
	// Output: 10.0.0.1:9000
}

// All processes send a key to the same node.
func ExampleHashKey() {
	var nodes []*selector.Node
	for _, address := range []string{"10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"} {
		n := selector.NewNode(&selector.Instance{Address: address, Weight: 100}, 1)
		n.SetReady(true)
		nodes = append(nodes, n)
	}
	picker := chash.Strategy().Build(nodes, nil)
	for _, key := range []string{"alice", "bob", "alice"} {
		n := picker.Pick(&selector.Request{Hash: selector.HashKey(key), HasHash: true})
		fmt.Println(key, n.Instance().Address)
	}
	// Output:
	// alice 10.0.0.2:9000
	// bob 10.0.0.1:9000
	// alice 10.0.0.2:9000
}
