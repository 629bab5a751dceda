package registry_test

import (
	"context"
	"errors"
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
