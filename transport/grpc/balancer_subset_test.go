package grpc_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

func TestSubsetWidens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var addresses []string
		for i := range 30 {
			addresses = append(addresses, fmt.Sprintf("s%02d:1", i))
		}
		c := n.client("direct:///"+strings.Join(addresses, ","), grpc.WithSubset(3))
		synctest.Wait()
		dormant := func() (count int) {
			for _, v := range grpc.FleetView(c.conn) {
				if v.Dormant {
					count++
				}
			}
			return count
		}
		if got := dormant(); got != 27 {
			t.Fatalf("%d dormant, want 27", got)
		}
		// Calls at the same moment widen once, not once each: what fails widens
		// again, until somebody answers.
		for _, v := range grpc.FleetView(c.conn) {
			if v.Dormant {
				n.raw(v.Address, answer(v.Address))
			}
		}
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				if _, err := c.say(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if got := dormant(); got != 24 {
			t.Errorf("%d dormant, want 24", got)
		}
		grpc.WidenTwice(c.conn)
		if got := dormant(); got != 21 {
			t.Errorf("%d dormant after two calls found nothing in one set, want 21", got)
		}
	})
}

// All of the subset refused: a call goes beyond it.
func TestSubsetWidensForACallThatTriedAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var addresses []string
		for i := range 6 {
			addresses = append(addresses, fmt.Sprintf("s%d:1", i))
			n.raw(addresses[i], func(s *rawStream) {
				if s.nonce() != "" {
					s.refuse(wire.Draining, "")
				}
			})
		}
		c := n.client("direct:///"+strings.Join(addresses, ","), grpc.WithSubset(2))
		c.awaitReady(t, 2)
		_, err := c.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
		if c.moves() != 5 {
			t.Errorf("%d moves, want 5", c.moves())
		}
	})
}
