package selector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	kerrors "github.com/go-kratos/kratos/v2/errors"
	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/selector"
)

func TestFromService(t *testing.T) {
	tests := []struct {
		name   string
		weight string
		want   int64
		fault  bool
	}{
		{"none", "", selector.DefaultWeight, false},
		{"number", "250", 250, false},
		{"zero drains", "0", 0, false},
		{"negative", "-1", selector.DefaultWeight, true},
		{"fraction", "1.5", selector.DefaultWeight, true},
		{"too large", "99999999999999999999", selector.DefaultWeight, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := &kregistry.ServiceInstance{ID: "i", Name: "svc", Version: "v1", Metadata: map[string]string{"zone": "z"}}
			if tt.weight != "" {
				in.Metadata["weight"] = tt.weight
			}
			got, err := selector.FromService(in, "grpc", "a:1")
			want := &selector.Instance{
				ID: "i", Service: "svc", Version: "v1", Scheme: "grpc", Address: "a:1", Weight: tt.want, Metadata: in.Metadata,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("instance (-want +got):\n%s", diff)
			}
			if (err != nil) != tt.fault {
				t.Errorf("error: got %v, want one: %v", err, tt.fault)
			}
		})
	}
	if got, err := selector.FromService(nil, "grpc", "a:1"); err != nil || got.Weight != selector.DefaultWeight {
		t.Errorf("no instance: got %+v, %v, want the default weight", got, err)
	}
}

// businessError is one in Kitex's sense.
type businessError struct{ error }

func (businessError) BizStatusCode() int32 { return 7 }

func TestOutcomeOf(t *testing.T) {
	tests := []struct {
		err  error
		want selector.Outcome
	}{
		{nil, selector.Success},
		{fmt.Errorf("wrapped: %w", businessError{errors.New("sold out")}), selector.Success},
		{context.Canceled, selector.Neutral},
		{kerrors.ClientClosed("GONE", ""), selector.Neutral},
		{kerrors.NotFound("NONE", ""), selector.Neutral},
		{fmt.Errorf("wrapped: %w", kerrors.BadRequest("BAD", "")), selector.Neutral},
		{status.Error(codes.Unimplemented, ""), selector.Neutral},
		{status.Error(codes.PermissionDenied, ""), selector.Neutral},
		{context.DeadlineExceeded, selector.Failure},
		{kerrors.GatewayTimeout("SLOW", ""), selector.Failure},
		{kerrors.ServiceUnavailable("DOWN", ""), selector.Failure},
		{kerrors.InternalServer("BUG", ""), selector.Failure},
		{kerrors.New(429, "RATELIMIT", ""), selector.Failure},
		{fmt.Errorf("wrapped: %w", status.Error(codes.ResourceExhausted, "")), selector.Failure},
		{status.Error(codes.Unknown, ""), selector.Failure},
		{io.ErrUnexpectedEOF, selector.Failure},
		{errors.Join(io.EOF, context.Canceled), selector.Neutral},
	}
	for _, tt := range tests {
		if got := selector.OutcomeOf(tt.err); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestNodeCountsLoadsApart(t *testing.T) {
	n := newNode("a", 100)
	n.Begin(1, selector.Unary)
	n.Begin(2, selector.Stream)
	n.Begin(3, selector.Stream)
	if n.InFlight() != 1 || n.OpenStreams() != 2 {
		t.Errorf("got %d in flight, %d streams, want 1 and 2", n.InFlight(), n.OpenStreams())
	}
	n.End(1_000_000, 2, selector.Stream, selector.Success)
	if got := n.Stats(); got.Latency != 0 || got.Results != 1 || got.OpenStreams != 1 {
		t.Errorf("after a stream: got %+v, want a result without latency", got)
	}
	n.End(5_000_001, 1, selector.Unary, selector.Success)
	if got := n.Stats(); got.Latency != 5_000_000 || got.InFlight != 0 {
		t.Errorf("after a unary call of 5 ms: got %+v", got)
	}
}

func TestNeutralTeachesNothing(t *testing.T) {
	n := newNode("a", 100)
	before := n.Stats()
	n.Begin(before.LastPick, selector.Unary)
	n.End(1_000_000_000, 1, selector.Unary, selector.Neutral)
	if diff := cmp.Diff(before, n.Stats()); diff != "" {
		t.Errorf("stats changed (-before +after):\n%s", diff)
	}
}

func TestTried(t *testing.T) {
	nodes := newNodes(20, equalWeight)
	var tried selector.Tried
	if tried.Len() != 0 || tried.Has(nodes[0]) || tried.Has(nil) {
		t.Error("the zero value is not empty")
	}
	tried.Add(nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, n := range nodes[:15] {
				tried.Add(n)
				if !tried.Has(n) {
					t.Error("a node just added is missing")
				}
			}
		})
	}
	all.Wait()
	if tried.Len() != 15 {
		t.Errorf("Len: got %d, want 15", tried.Len())
	}
	for i, n := range nodes {
		if tried.Has(n) != (i < 15) {
			t.Errorf("Has node %d: got %v", i, tried.Has(n))
		}
	}
	if (*selector.Tried)(nil).Has(nodes[0]) || (*selector.Tried)(nil).Len() != 0 {
		t.Error("a nil set is not empty")
	}
}

func TestOwner(t *testing.T) {
	n := newNode("a", 100)
	if got := n.Owner(); got != nil {
		t.Errorf("new node: got owner %v, want nil", got)
	}
	n.SetOwner(42)
	if got := n.Owner(); got != 42 {
		t.Errorf("got owner %v, want 42", got)
	}
	if back, ok := selector.FromKratos(n.Kratos()); !ok || back != n {
		t.Errorf("FromKratos(Kratos()): got %v, want the node", back)
	}
	if _, ok := selector.FromKratos(kratosNode("x", "1")); ok {
		t.Error("FromKratos takes a foreign node for ours")
	}
}
