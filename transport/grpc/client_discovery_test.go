package grpc_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/transport/grpc"
)

func TestDiscovery(t *testing.T) {
	t.Parallel()
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			d := newDiscovery()
			d.silent = true
			c := n.client("discovery:///greeter", grpc.WithDiscovery(d))
			began := time.Now()
			_, err := c.say(t.Context())
			wantErr(t, err, codes.Unavailable, materpc.ServiceDiscovery)
			if took := time.Since(began); took != time.Second {
				t.Errorf("took %v, want 1 s", took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err = c.say(ctx, stdgrpc.WaitForReady(true))
			wantErr(t, err, codes.DeadlineExceeded, materpc.TimeoutByBusiness)
		})
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			c := n.client("discovery:///greeter", grpc.WithDiscovery(newDiscovery()))
			began := time.Now()
			_, err := c.say(t.Context())
			wantErr(t, err, codes.Unavailable, materpc.NoInstance)
			if took := time.Since(began); took > 0 {
				t.Errorf("took %v", took)
			}
		})
	})
	t.Run("error at first", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			n.raw("a:1", answer("a"))
			d := newDiscovery()
			d.push(errRegistry)
			c := n.client("discovery:///greeter", grpc.WithDiscovery(d))
			began := time.Now()
			_, err := c.say(t.Context())
			wantErr(t, err, codes.Unavailable, materpc.ServiceDiscovery)
			if took := time.Since(began); took >= time.Second || !strings.Contains(err.Error(), errRegistry.Error()) {
				t.Errorf("%v after %v", err, took)
			}
			time.AfterFunc(20*time.Second, func() { d.push(nil, instanceOf("a", "a:1")) })
			if _, err := c.say(t.Context(), stdgrpc.WaitForReady(true)); err != nil {
				t.Error(err)
			}
		})
	})
}

// What was good stays in use; what nobody can dial is told.
func TestDiscoveryFaults(t *testing.T) {
	t.Parallel()
	t.Run("error after a good list", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			a := n.raw("a:1", answer("a"))
			d := newDiscovery(instanceOf("a", "a:1"))
			c := n.client("discovery:///greeter", grpc.WithDiscovery(d))
			c.awaitReady(t, 1)
			d.push(errRegistry)
			time.Sleep(time.Minute)
			if _, err := c.say(t.Context()); err != nil || a.accepted.Load() != 1 {
				t.Errorf("%v, %d connections", err, a.accepted.Load())
			}
			if len(c.events.of(materpc.Discovery)) == 0 {
				t.Error("nobody was told")
			}
		})
	})
	t.Run("no endpoint of our scheme", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			in := instanceOf("a", "a:1")
			in.Endpoints = []string{"http://a:80", "grpcs://a:2"}
			c := n.client("discovery:///greeter", grpc.WithDiscovery(newDiscovery(in)))
			_, err := c.say(t.Context())
			if kind := materpc.KindOf(err); kind != materpc.ServiceDiscovery || !strings.Contains(err.Error(), "grpcs://a:2") {
				t.Errorf("%v, kind %v", err, kind)
			}
		})
	})
}

// Clients share the watch of a hub, and let go of it.
func TestSharedHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", answer("a"))
		d := newDiscovery(instanceOf("a", "a:1"))
		hub := registry.NewHub(d)
		watching := func() int {
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.watchers
		}
		first, second := n.client("discovery:///greeter", grpc.WithHub(hub)), n.client("discovery:///greeter", grpc.WithHub(hub))
		for _, c := range []*testClient{first, second} {
			if _, err := c.say(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := watching(); got != 1 {
			t.Errorf("%d watches, want 1", got)
		}
		_ = first.conn.Close()
		if _, err := second.say(t.Context()); err != nil || watching() != 1 {
			t.Errorf("after the first client's Close: %v, %d watches", err, watching())
		}
		_ = second.conn.Close()
		if got := watching(); got != 0 {
			t.Errorf("%d watches after both, want 0", got)
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Weight 0 drains: nothing to pick, and nothing to wait for.
func TestNothingWeighs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		mute := &rawServer{listener: n.listen("a:1"), script: func(*rawStream) {}, onConn: muteConn}
		mute.start(t)
		c := n.client("discovery:///greeter", grpc.WithDiscovery(newDiscovery(instanceOf("a", "a:1", "weight", "0"))))
		began := time.Now()
		_, err := c.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.NoInstance)
		if took := time.Since(began); took > 0 || !strings.Contains(err.Error(), "weight 0") {
			t.Errorf("%v after %v", err, took)
		}
	})
}
