package grpcshield_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

// bare calls the interceptor around a transport that does nothing.
func bare(t testing.TB, c grpcshield.Client) func(options []grpc.CallOption) error {
	t.Helper()
	intercept, err := grpcshield.UnaryInterceptor(c)
	if err != nil {
		t.Fatal(err)
	}
	req, reply := wrapperspb.String("hello"), &wrapperspb.StringValue{}
	invoker := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	ctx := context.Background()
	return func(options []grpc.CallOption) error {
		return intercept(ctx, unaryMethod, req, reply, nil, invoker, options...)
	}
}

// perMethod is partitions with one shield.
func perMethod(t testing.TB, s *shield.Shield) *shield.Partitions[string] {
	t.Helper()
	p, err := shield.NewPartitions(shield.PartitionConfig[string]{Build: func(context.Context, string) (*shield.Shield, error) { return s, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAllocations(t *testing.T) {
	layers := []shield.Layer{shield.On(grpcshield.ServerFaults), shield.Rate{Permits: 1e9}, shield.Breaker{}, shield.Concurrency{}}
	one := build(t, layers...)
	var header, trailer metadata.MD
	options := []grpc.CallOption{grpc.Header(&header), grpc.Trailer(&trailer)}
	for name, c := range map[string]struct {
		client  grpcshield.Client
		options []grpc.CallOption
		want    float64
	}{
		"one attempt":              {grpcshield.Client{Unary: one}, nil, 0},
		"one attempt with options": {grpcshield.Client{Unary: one}, options, 0},
		"by method":                {grpcshield.Client{ByMethod: perMethod(t, one)}, nil, 0},
		"retry of none":            {grpcshield.Client{Unary: build(t, shield.Retry{Max: shield.None}, shield.Breaker{})}, nil, 0},
		// The call's record, and the options of its attempts.
		"retry that has nothing to do": {grpcshield.Client{Unary: build(t, append(layers, shield.Retry{})...)}, nil, 2},
	} {
		run := bare(t, c.client)
		if got := testing.AllocsPerRun(1000, func() { _ = run(c.options) }); got > c.want {
			t.Errorf("%s: %v allocations a call, want %v", name, got, c.want)
		}
	}
}

func BenchmarkUnary(b *testing.B) {
	layers := []shield.Layer{shield.On(grpcshield.ServerFaults), shield.Breaker{}, shield.Concurrency{}}
	for _, c := range []struct {
		name   string
		layers []shield.Layer
	}{
		{"breaker+concurrency", layers},
		{"timeout+breaker", append([]shield.Layer{shield.Timeout{}}, layers...)},
		{"retry+breaker", append([]shield.Layer{shield.Retry{}}, layers...)},
		{"hedge", []shield.Layer{shield.Hedge{}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			run := bare(b, grpcshield.Client{Unary: build(b, c.layers...)})
			b.ReportAllocs()
			for b.Loop() {
				if err := run(nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEndToEnd is a whole call over bufconn, without and with shields.
func BenchmarkEndToEnd(b *testing.B) {
	one := shield.Breaker{}
	for _, c := range []struct {
		name   string
		layers []shield.Layer
	}{
		{"bare", nil},
		{"breaker", []shield.Layer{one}},
		{"retry+breaker", []shield.Layer{shield.Retry{}, one}},
		{"hedge", []shield.Layer{shield.Hedge{}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			options := start(b, &backend{})
			if c.layers != nil {
				more, err := grpcshield.Dial(grpcshield.Client{Unary: build(b, c.layers...)})
				if err != nil {
					b.Fatal(err)
				}
				options = append(options, more...)
			}
			cc := connect(b, options)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := call(b.Context(), cc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// nothing is a stream that is always ready.
type nothing struct{ grpc.ClientStream }

func (nothing) SendMsg(any) error { return nil }
func (nothing) RecvMsg(any) error { return nil }

func operate(t testing.TB, layers ...shield.Layer) func() {
	t.Helper()
	intercept, err := grpcshield.StreamInterceptor(grpcshield.Client{Stream: build(t, layers...)})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := intercept(context.Background(), bidiDesc, nil, bidiMethod, func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return nothing{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m := wrapperspb.String("a")
	return func() {
		_ = stream.SendMsg(m)
		_ = stream.RecvMsg(m)
	}
}

func TestAllocationsOfOperations(t *testing.T) {
	run := operate(t, shield.Rate{Permits: 1e9}, shield.Breaker{}, shield.Concurrency{})
	if got := testing.AllocsPerRun(1000, run); got > 0 {
		t.Errorf("%v allocations for a write and a read", got)
	}
}

func BenchmarkOperations(b *testing.B) {
	run := operate(b, shield.Breaker{}, shield.Concurrency{})
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}
