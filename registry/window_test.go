package registry_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/memory"
)

// stubbornRegistrar cannot take anything away.
type stubbornRegistrar struct{ kregistry.Registrar }

var errStubborn = errors.New("stubborn")

func (stubbornRegistrar) Deregister(context.Context, *kregistry.ServiceInstance) error {
	return errStubborn
}

func TestWindowedWaitsAfterTheDeregistration(t *testing.T) {
	in := &kregistry.ServiceInstance{ID: "1", Name: "orders", Endpoints: []string{"grpc://10.0.0.1:9000"}}
	for name, test := range map[string]struct {
		bound    time.Duration // of Deregister's ctx
		never    bool          // registered
		wrap     func(kregistry.Registrar) kregistry.Registrar
		want     time.Duration
		wantErr  error
		wantLeft int
	}{
		"the window":           {bound: time.Minute, want: 2 * time.Second},
		"no longer than ctx":   {bound: 500 * time.Millisecond, want: 500 * time.Millisecond},
		"never registered":     {bound: time.Minute, never: true},
		"deregistration fails": {bound: time.Second, wrap: func(r kregistry.Registrar) kregistry.Registrar { return stubbornRegistrar{r} }, want: time.Second, wantErr: errStubborn, wantLeft: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				var inner kregistry.Registrar = store
				if test.wrap != nil {
					inner = test.wrap(store)
				}
				w := registry.Windowed(inner, 2*time.Second)
				if !test.never {
					if err := w.Register(t.Context(), in); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), test.bound)
				defer cancel()
				began := time.Now()
				err := w.Deregister(ctx, in)
				if took := time.Since(began); took != test.want || !errors.Is(err, test.wantErr) {
					t.Errorf("Deregister took %v, %v; want %v, %v", took, err, test.want, test.wantErr)
				}
				if list, err := store.GetService(t.Context(), "orders"); err != nil || len(list) != test.wantLeft {
					t.Errorf("left %v, %v; want %d", list, err, test.wantLeft)
				}
			})
		})
	}
}

func TestWindowedTellsOfANilInstance(t *testing.T) {
	t.Parallel()
	w := registry.Windowed(memory.New(), 0)
	for what, err := range map[string]error{"Register": w.Register(t.Context(), nil), "Deregister": w.Deregister(t.Context(), nil)} {
		if err == nil || !strings.Contains(err.Error(), "the instance is nil") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// slowRegistrar takes its time before and after the write of a version.
type slowRegistrar struct {
	*memory.Registry
	before, after map[string]time.Duration
}

func (r slowRegistrar) Register(ctx context.Context, in *kregistry.ServiceInstance) error {
	time.Sleep(r.before[in.Version])
	err := r.Registry.Register(ctx, in)
	time.Sleep(r.after[in.Version])
	return err
}

// TestWindowedWithdrawsEveryGeneration wants nothing left by a Deregister that
// comes while generations of one key are under way, or in doubt.
func TestWindowedWithdrawsEveryGeneration(t *testing.T) {
	type times = map[string]time.Duration
	for name, test := range map[string]struct {
		before, after times
		bound         time.Duration // of a Register; 0 is none
	}{
		"one overtook the other": {before: times{"v1": time.Second}},
		"both in flight":         {before: times{"v1": time.Second, "v2": time.Second}},
		"the second in doubt":    {after: times{"v2": time.Second}, bound: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				w := registry.Windowed(slowRegistrar{store, test.before, test.after}, 2*time.Second)
				var group sync.WaitGroup
				for _, version := range []string{"v1", "v2"} {
					in := &kregistry.ServiceInstance{ID: "1", Name: "orders", Version: version, Endpoints: []string{"grpc://10.0.0.1:9000"}}
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if test.bound > 0 {
						ctx, cancel = context.WithTimeout(ctx, test.bound)
					}
					group.Go(func() { defer cancel(); _ = w.Register(ctx, in) })
					synctest.Wait()
				}
				time.Sleep(100 * time.Millisecond)
				if err := w.Deregister(t.Context(), &kregistry.ServiceInstance{ID: "1", Name: "orders"}); err != nil {
					t.Error(err)
				}
				group.Wait()
				time.Sleep(10 * time.Second)
				if list, err := store.GetService(t.Context(), "orders"); err != nil || len(list) != 0 {
					t.Errorf("left %v, %v", list, err)
				}
			})
		})
	}
}
