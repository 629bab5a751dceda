package static_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/static"
)

func TestParse(t *testing.T) {
	t.Parallel()
	d, err := static.Parse(" 10.0.0.1:9000, [2001:db8::1]:9000?weight=50 ,grpcs://svc.local:443?weight=0,10.0.0.1:9000,")
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.GetService(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	want := []*kregistry.ServiceInstance{
		{Name: "orders", Endpoints: []string{"grpc://10.0.0.1:9000"}},
		{Name: "orders", Metadata: map[string]string{"weight": "50"}, Endpoints: []string{"grpc://[2001:db8::1]:9000"}},
		{Name: "orders", Metadata: map[string]string{"weight": "0"}, Endpoints: []string{"grpcs://svc.local:443"}},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	list[0].Endpoints[0] = "changed"
	if again, _ := d.GetService(t.Context(), "orders"); again[0].Endpoints[0] != "grpc://10.0.0.1:9000" {
		t.Error("a reader's change reaches the next reader")
	}
}

func TestParseTellsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := static.Parse("10.0.0.1,:9000,h:1?weight=-1,h:2?wieght=1,ok:1")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`"10.0.0.1"`, `":9000"`, `weight "-1"`, `"wieght"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}
	if _, err := static.Parse(" , "); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty list: %v", err)
	}
	if _, err := static.New(nil, &kregistry.ServiceInstance{}); err == nil || !strings.Contains(err.Error(), "instance 1") || !strings.Contains(err.Error(), "instance 2") {
		t.Errorf("bad instances: %v", err)
	}
}

func TestWatchHasTheListOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := static.Parse("a:1,b:2")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w, err := d.Watch(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if list, err := w.Next(); err != nil || len(list) != 2 {
			t.Errorf("Next: %v, %v", list, err)
		}
		ended := make(chan error)
		go func() { _, err := w.Next(); ended <- err }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("second Next: %v", err)
		}
	})
}

func TestUnderAHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := static.Parse("a:1,b:2")
		if err != nil {
			t.Fatal(err)
		}
		hub := registry.NewHub(d)
		var got registry.Snapshot
		hub.Subscribe("orders", func(s registry.Snapshot) { got = s })
		synctest.Wait()
		if len(got.Instances) != 2 || got.Err != nil {
			t.Errorf("snapshot is %+v", got)
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
}
