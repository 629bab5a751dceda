package app_test

import (
	"context"
	"maps"
	"testing"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/app"
)

// describedServer says something about itself.
type describedServer struct{ stop chan struct{} }

func (s *describedServer) Start(context.Context) error { <-s.stop; return nil }
func (s *describedServer) Stop(context.Context) error  { close(s.stop); return nil }
func (*describedServer) InstanceMetadata() map[string]string {
	return map[string]string{"zone": "the server's", "materpc": "1"}
}

// registrarFunc is a registrar that only looks.
type registrarFunc func(*kregistry.ServiceInstance)

func (f registrarFunc) Register(_ context.Context, in *kregistry.ServiceInstance) error {
	f(in)
	return nil
}
func (registrarFunc) Deregister(context.Context, *kregistry.ServiceInstance) error { return nil }

func TestServersDescribeThemselvesUnderTheUsersMetadata(t *testing.T) {
	t.Parallel()
	registered := make(chan map[string]string, 1)
	a := app.New(app.Name("orders"), app.Server(&describedServer{stop: make(chan struct{})}), app.PropagationWindow(0),
		app.Metadata(map[string]string{"zone": "the user's"}),
		app.Registrar(registrarFunc(func(in *kregistry.ServiceInstance) { registered <- maps.Clone(in.Metadata) })))
	ended := make(chan error, 1)
	go func() { ended <- a.Run() }()
	got := <-registered
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if want := map[string]string{"zone": "the user's", "materpc": "1"}; !maps.Equal(got, want) {
		t.Errorf("registered metadata %v, want %v", got, want)
	}
}
