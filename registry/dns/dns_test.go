package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/dns"
)

// fakeResolver answers from two maps.
type fakeResolver struct {
	mu      sync.Mutex
	hosts   map[string][]string
	srv     []*net.SRV
	err     error
	hang    bool
	lookups int
	asked   string
}

func (f *fakeResolver) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeResolver) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lookups
}

func (f *fakeResolver) LookupHost(ctx context.Context, host string) ([]string, error) {
	f.mu.Lock()
	f.lookups++
	hang, err, found := f.hang, f.err, f.hosts[host]
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err == nil && found == nil {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return found, err
}

func (f *fakeResolver) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = service + " " + proto + " " + name
	return "", f.srv, f.err
}

var errServer = errors.New("server misbehaving")

// show lists endpoints with their weights.
func show(list []*kregistry.ServiceInstance) string {
	var out []string
	for _, in := range list {
		entry := strings.TrimPrefix(in.Endpoints[0], "grpc://")
		if weight := in.Metadata["weight"]; weight != "" {
			entry += "=" + weight
		}
		out = append(out, entry)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestHostNames(t *testing.T) {
	t.Parallel()
	f := &fakeResolver{hosts: map[string][]string{
		"orders": {"10.0.0.2", "10.0.0.1", "10.0.0.2", "2001:db8::1", "fe80::1%eth0"}, "::1": {"::1"}, "empty": {},
	}}
	d := dns.New(dns.WithResolver(f))
	for name, want := range map[string]string{
		"orders:9000": "10.0.0.1:9000 10.0.0.2:9000 [2001:db8::1]:9000 [fe80::1%25eth0]:9000",
		"orders":      "10.0.0.1:443 10.0.0.2:443 [2001:db8::1]:443 [fe80::1%25eth0]:443",
		"[::1]:9000":  "[::1]:9000",
		"::1":         "[::1]:443",
	} {
		list, err := d.GetService(t.Context(), name)
		if err != nil || show(list) != want {
			t.Errorf("%s: %s, %v; want %s", name, show(list), err, want)
		}
	}
	for _, name := range []string{"", ":9000", "orders:0", "orders:x", "a:b:c", "nobody:1", "empty:1"} {
		list, err := d.GetService(t.Context(), name)
		if err == nil || len(list) != 0 || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%q: %v, %v", name, list, err)
		}
	}
}

func TestSRVPriorityAndWeight(t *testing.T) {
	t.Parallel()
	hosts := map[string][]string{"a": {"10.0.0.1"}, "b": {"10.0.0.2"}, "two": {"10.0.1.1", "10.0.1.2"}}
	for _, c := range []struct {
		name string
		srv  []*net.SRV
		want string
	}{
		{"weights", []*net.SRV{{Target: "a.", Port: 1, Weight: 30}, {Target: "b.", Port: 2, Weight: 10}}, "10.0.0.1:1=30 10.0.0.2:2=10"},
		{"no weights", []*net.SRV{{Target: "a.", Port: 1}, {Target: "b.", Port: 2}}, "10.0.0.1:1 10.0.0.2:2"},
		{"weight 0 does not drain", []*net.SRV{{Target: "a.", Port: 1, Weight: 9}, {Target: "b.", Port: 2}}, "10.0.0.1:1=9 10.0.0.2:2=1"},
		{"addresses share a weight", []*net.SRV{{Target: "two.", Port: 1, Weight: 1}, {Target: "b.", Port: 2, Weight: 1}}, "10.0.0.2:2=100 10.0.1.1:1=50 10.0.1.2:1=50"},
		{"best priority", []*net.SRV{{Target: "b.", Port: 2, Priority: 20}, {Target: "a.", Port: 1, Priority: 10}}, "10.0.0.1:1"},
		{"next priority", []*net.SRV{{Target: "b.", Port: 2, Priority: 20}, {Target: "gone.", Port: 1, Priority: 10}}, "10.0.0.2:2"},
		{"a target without address", []*net.SRV{{Target: "gone.", Port: 1}, {Target: "a.", Port: 1}}, "10.0.0.1:1"},
		{"a target with a bad port", []*net.SRV{{Target: "b.", Port: 0}, {Target: "a.", Port: 1}}, "10.0.0.1:1"},
	} {
		list, err := dns.NewSRV(dns.WithResolver(&fakeResolver{hosts: hosts, srv: c.srv})).GetService(t.Context(), "orders.example")
		if err != nil || show(list) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, show(list), err, c.want)
		}
	}
	for _, srv := range [][]*net.SRV{nil, {{Target: "."}}, {{Target: "gone."}}} {
		list, err := dns.NewSRV(dns.WithResolver(&fakeResolver{hosts: hosts, srv: srv})).GetService(t.Context(), "orders.example")
		if err == nil || len(list) != 0 {
			t.Errorf("%v: %v, %v", srv, list, err)
		}
	}
}

func TestSRVNames(t *testing.T) {
	t.Parallel()
	f := &fakeResolver{hosts: map[string][]string{"a": {"10.0.0.1"}}, srv: []*net.SRV{{Target: "a", Port: 1}}}
	d := dns.NewSRV(dns.WithResolver(f))
	for name, want := range map[string]string{
		"orders.example":              "grpc tcp orders.example",
		"_grpclb._tcp.orders.example": "  _grpclb._tcp.orders.example",
	} {
		if _, err := d.GetService(t.Context(), name); err != nil || f.asked != want {
			t.Errorf("%s asks %q, %v; want %q", name, f.asked, err, want)
		}
	}
}

func TestInvariant11LastGoodListStaysWhenDNSFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeResolver{hosts: map[string][]string{"orders": {"10.0.0.1"}}}
		var failed, recovered atomic.Int64
		d := dns.New(dns.WithResolver(f), dns.OnEvent(func(e registry.Event) {
			switch e.Kind {
			case registry.ReadFailed:
				failed.Add(1)
			case registry.ReadRecovered:
				recovered.Add(1)
			}
		}))
		hub := registry.NewHub(d)
		var got atomic.Value
		hub.Subscribe("orders:1", func(s registry.Snapshot) { got.Store(show(s.Instances)) })
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got.Load() != want {
				t.Errorf("list is %q, want %q", got.Load(), want)
			}
		}
		expect("10.0.0.1:1")
		f.set(func() { f.hosts["orders"] = []string{"10.0.0.2"} })
		time.Sleep(29 * time.Second)
		expect("10.0.0.1:1")
		time.Sleep(2 * time.Second)
		expect("10.0.0.2:1")
		f.set(func() { f.err = errServer })
		time.Sleep(10 * time.Minute)
		expect("10.0.0.2:1")
		f.set(func() { f.err, f.hosts["orders"] = nil, nil }) // no such host
		time.Sleep(10 * time.Minute)
		expect("10.0.0.2:1")
		f.set(func() { f.hosts["orders"] = []string{"10.0.0.3"} })
		time.Sleep(31 * time.Second)
		expect("10.0.0.3:1")
		if failed.Load() != 1 || recovered.Load() != 1 {
			t.Errorf("%d events of failure, %d of recovery for one outage", failed.Load(), recovered.Load())
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestRefreshLooksAgainButNotInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeResolver{hosts: map[string][]string{"orders": {"10.0.0.1"}}}
		hub := registry.NewHub(dns.New(dns.WithResolver(f)))
		var got atomic.Value
		hub.Subscribe("orders:1", func(s registry.Snapshot) { got.Store(show(s.Instances)) })
		time.Sleep(10 * time.Second)
		f.set(func() { f.hosts["orders"] = []string{"10.0.0.2"} })
		hub.Refresh("orders:1")
		hub.Refresh("other:1")
		synctest.Wait()
		if got.Load() != "10.0.0.2:1" {
			t.Errorf("after a refresh the list is %q", got.Load())
		}
		before := f.count()
		for range 200 { // 20 s of lost connections
			hub.Refresh("orders:1")
			time.Sleep(100 * time.Millisecond)
		}
		if n := f.count() - before; n < 3 || n > 5 {
			t.Errorf("%d lookups in 20 s", n)
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestLookupIsBoundedAndAWatchEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeResolver{hang: true}
		d := dns.New(dns.WithResolver(f))
		began := time.Now()
		if _, err := d.GetService(t.Context(), "orders:1"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("GetService: %v after %s", err, time.Since(began))
		}
		w, err := d.Watch(t.Context(), "orders:1")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { _, err := w.Next(); ended <- err }()
		synctest.Wait()
		for range 2 {
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Next: %v", err)
		}
	})
}
