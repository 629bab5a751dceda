package grpc_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/transport/grpc"
)

// slowPick takes its time over a pick that finds nothing.
type slowPick struct{ inOrder }

func (s slowPick) Build(nodes []*selector.Node, previous selector.Picker) selector.Picker {
	return slowPicker{s.inOrder.Build(nodes, previous)}
}

type slowPicker struct{ selector.Picker }

func (p slowPicker) Pick(r *selector.Request) *selector.Node {
	node := p.Picker.Pick(r)
	if node == nil {
		time.Sleep(3 * time.Second)
	}
	return node
}

// An instance that becomes READY while a pick finds nothing is found all the
// same, and nobody is woken for it.
func TestInstanceBecomesReadyDuringThePick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		for _, address := range []string{"a:1", "b:1"} {
			n.raw(address, answer(address))
		}
		c := n.client("direct:///a:1,b:1", grpc.WithSubset(1), grpc.WithStrategy(slowPick{}),
			grpc.WithOptions(stdgrpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				time.Sleep(2 * time.Second)
				return n.dialContext(ctx, address)
			})))
		if _, err := c.say(t.Context()); err != nil {
			t.Error(err)
		}
		if got := awake(c); got != 1 {
			t.Errorf("%d awake, want 1", got)
		}
	})
}
