package kratos_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	kratos "github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/transport"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"github.com/google/go-cmp/cmp"
	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/transport/grpc"
)

// journal notes what happens to an app, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) sorted(from, to int) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(slices.Values(j.lines[min(from, len(j.lines)):min(to, len(j.lines))]))
}

// hook is an app's hook that notes that it ran.
func (j *journal) hook(name string) func(context.Context) error {
	return func(context.Context) error { j.note(name); return nil }
}

// notedRegistry notes registrations that succeeded.
type notedRegistry struct {
	*memory.Registry
	journal *journal
}

func (r notedRegistry) Register(ctx context.Context, in *registry.ServiceInstance) error {
	err := r.Registry.Register(ctx, in)
	if err == nil {
		r.journal.note("registered")
	}
	return err
}

func (r notedRegistry) Deregister(ctx context.Context, in *registry.ServiceInstance) error {
	err := r.Registry.Deregister(ctx, in)
	if err == nil {
		r.journal.note("deregistered")
	}
	return err
}

// notedServer notes when a server of Kratos or ours has stopped.
type notedServer struct {
	server interface {
		transport.Server
		transport.Endpointer
	}
	name    string
	journal *journal
}

func (s notedServer) Endpoint() (*url.URL, error)     { return s.server.Endpoint() }
func (s notedServer) Start(ctx context.Context) error { return s.server.Start(ctx) }
func (s notedServer) Stop(ctx context.Context) error {
	err := s.server.Stop(ctx)
	s.journal.note(s.name + " stopped")
	return err
}

// slowGreeter answers when it is released.
type slowGreeter struct {
	hellov1.UnimplementedGreeterServer
	inside, release chan struct{}
}

func (g *slowGreeter) SayHello(ctx context.Context, in *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	if in.GetName() == waiting {
		g.inside <- struct{}{}
		select {
		case <-g.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &hellov1.SayHelloResponse{Message: in.GetName()}, nil
}

// TestAppsRunTheOthersServers: kratos.New runs our server, our app Kratos's gRPC
// and HTTP servers. Each is found and called, keeps a call that runs when it is
// stopped, and goes through the same steps.
func TestAppsRunTheOthersServers(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(j *journal, reg notedRegistry, g *slowGreeter) (servers []string, run, stop func() error)
	}{
		{"kratos.New", theirApp},
		{"our app", ourApp},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j, g := &journal{}, &slowGreeter{inside: make(chan struct{}), release: make(chan struct{})}
			reg := notedRegistry{Registry: memory.New(), journal: j}
			servers, run, stop := tt.run(j, reg, g)
			ran := make(chan error, 1)
			go func() { ran <- run() }()

			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			client := dialSvc(t, reg)
			if out, err := client.SayHello(ctx, &hellov1.SayHelloRequest{Name: "ada"}, stdgrpc.WaitForReady(true)); err != nil || out.GetMessage() != "ada" {
				t.Fatalf("%v, %v", out, err)
			}
			instances, err := reg.GetService(ctx, "svc")
			if err != nil || len(instances) != 1 || len(instances[0].Endpoints) != len(servers) {
				t.Fatalf("registered: %v, %v", instances, err)
			}
			if slices.Contains(servers, "http stopped") {
				wantHTTP(ctx, t, reg)
			}

			answered := make(chan error, 1)
			go func() {
				_, err := client.SayHello(ctx, &hellov1.SayHelloRequest{Name: waiting})
				answered <- err
			}()
			select {
			case <-g.inside:
			case err := <-answered:
				t.Fatalf("the call did not reach its handler: %v", err)
			}
			stopped := make(chan error, 1)
			go func() { stopped <- stop() }()
			waitGone(ctx, t, reg)
			close(g.release)
			if err := errors.Join(<-answered, <-stopped, <-ran); err != nil {
				t.Errorf("a call, Stop, Run: %v", err)
			}
			for _, endpoint := range instances[0].Endpoints {
				wantClosed(t, endpoint)
			}
			wantOrder(t, j, servers)
		})
	}
}

func theirApp(j *journal, reg notedRegistry, g *slowGreeter) (servers []string, run, stop func() error) {
	server := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	hellov1.RegisterGreeterServer(server, g)
	k := kratos.New(kratos.Name("svc"), kratos.Registrar(reg), kratos.Server(notedServer{server, "grpc", j}),
		kratos.BeforeStart(j.hook("before start")), kratos.AfterStart(j.hook("after start")),
		kratos.BeforeStop(j.hook("before stop")), kratos.AfterStop(j.hook("after stop")))
	return []string{"grpc stopped"}, k.Run, k.Stop
}

func ourApp(j *journal, reg notedRegistry, g *slowGreeter) (servers []string, run, stop func() error) {
	server := kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"), kgrpc.Timeout(0))
	hellov1.RegisterGreeterServer(server, g)
	web := khttp.NewServer(khttp.Address("127.0.0.1:0"))
	web.Route("/").GET("/hello", func(c khttp.Context) error { return c.Result(http.StatusOK, map[string]string{"message": "hello"}) })
	a := app.New(app.Name("svc"), app.Registrar(reg), app.Server(notedServer{server, "grpc", j}, notedServer{web, "http", j}),
		app.PropagationWindow(50*time.Millisecond), app.Signal(), app.Slog(nil), app.Logger(log.NewStdLogger(io.Discard)),
		app.BeforeStart(j.hook("before start")), app.AfterStart(j.hook("after start")),
		app.BeforeStop(j.hook("before stop")), app.AfterStop(j.hook("after stop")))
	return []string{"grpc stopped", "http stopped"}, a.Run, a.Stop
}

func dialSvc(t *testing.T, reg registry.Discovery) hellov1.GreeterClient {
	t.Helper()
	conn, err := grpc.NewClient("discovery:///svc", grpc.WithDiscovery(reg), grpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return hellov1.NewGreeterClient(conn)
}

// wantHTTP calls with Kratos's HTTP client, which finds the server in our
// registry and picks it with our selector.
func wantHTTP(ctx context.Context, t *testing.T, reg registry.Discovery) {
	t.Helper()
	client, err := khttp.NewClient(ctx, khttp.WithEndpoint("discovery:///svc"), khttp.WithDiscovery(reg), khttp.WithBlock(), khttp.WithTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	var out struct{ Message string }
	if err := client.Invoke(ctx, http.MethodGet, "/hello", nil, &out); err != nil || out.Message != "hello" {
		t.Errorf("over HTTP: %q, %v", out.Message, err)
	}
}

// waitGone waits until the service is no longer registered.
func waitGone(ctx context.Context, t *testing.T, reg registry.Discovery) {
	t.Helper()
	watcher, err := reg.Watch(ctx, "svc")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watcher.Stop() }()
	for {
		instances, err := watcher.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(instances) == 0 {
			return
		}
	}
}

func wantClosed(t *testing.T, endpoint string) {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", u.Host); err == nil {
		conn.Close()
		t.Errorf("%s is still served", endpoint)
	}
}

// wantOrder checks the steps; servers stop beside each other.
func wantOrder(t *testing.T, j *journal, servers []string) {
	t.Helper()
	before := []string{"before start", "registered", "after start", "before stop", "deregistered"}
	if diff := cmp.Diff(before, j.lines[:min(len(before), len(j.lines))]); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	end := len(before) + len(servers)
	if diff := cmp.Diff(servers, j.sorted(len(before), end)); diff != "" {
		t.Errorf("servers stopped (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"after stop"}, j.sorted(end, 99)); diff != "" {
		t.Errorf("last step (-want +got):\n%s", diff)
	}
}

// TestMixedServiceBothClients: one service with an instance of either side. Both
// clients use both, follow the registry when ours is taken out and put back, and
// when it stops in the middle of calls none fails.
func TestMixedServiceBothClients(t *testing.T) {
	reg := memory.New()
	ours, theirs := grpc.NewServer(grpc.Address("127.0.0.1:0")), kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"))
	hellov1.RegisterGreeterServer(ours, plainGreeter{id: "ours"})
	hellov1.RegisterGreeterServer(theirs, plainGreeter{id: "theirs"})
	k := kratos.New(kratos.Name("svc"), kratos.ID("theirs"), kratos.Server(theirs), kratos.Registrar(reg))
	start(t, k.Run, k.Stop)
	a := app.New(app.Name("svc"), app.ID("ours"), app.Server(ours), app.Registrar(reg), app.PropagationWindow(300*time.Millisecond), app.Signal(), app.Slog(nil))
	ran := make(chan error, 1)
	go func() { ran <- a.Run() }()

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	their, err := kgrpc.DialInsecure(ctx, kgrpc.WithEndpoint("discovery:///svc"), kgrpc.WithDiscovery(reg), kgrpc.WithPrintDiscoveryDebugLog(false))
	if err != nil {
		t.Fatal(err)
	}
	defer their.Close()
	clients := map[string]hellov1.GreeterClient{"our client": dialSvc(t, reg), "their client": hellov1.NewGreeterClient(their)}
	// until calls one client until its answers satisfy done.
	until := func(name string, done func(server string) bool) {
		for {
			out, err := clients[name].SayHello(ctx, &hellov1.SayHelloRequest{Name: "ada"}, stdgrpc.WaitForReady(true))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if done(out.GetServer()) {
				return
			}
		}
	}
	for name := range clients {
		seen := map[string]bool{}
		until(name, func(server string) bool { seen[server] = true; return len(seen) == 2 })
	}
	ourRecord := &registry.ServiceInstance{ID: a.ID(), Name: a.Name(), Endpoints: a.Endpoint()}
	if err := reg.Deregister(ctx, ourRecord); err != nil { // it still serves: discovery alone keeps callers away
		t.Fatal(err)
	}
	for name := range clients {
		row := 0
		until(name, func(server string) bool {
			if row++; server != "theirs" {
				row = 0
			}
			return row == 50
		})
	}
	if err := reg.Register(ctx, ourRecord); err != nil {
		t.Fatal(err)
	}
	for name := range clients {
		until(name, func(server string) bool { return server == "ours" })
	}
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop() }()
	for end := false; !end; {
		select {
		case err := <-stopped:
			if err := errors.Join(err, <-ran); err != nil {
				t.Error(err)
			}
			end = true
		default:
		}
		for name := range clients {
			until(name, func(server string) bool {
				if end && server != "theirs" {
					t.Errorf("%s was answered by %q, which has stopped", name, server)
				}
				return true
			})
		}
	}
}

type plainGreeter struct {
	hellov1.UnimplementedGreeterServer
	id string
}

func (g plainGreeter) SayHello(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	return &hellov1.SayHelloResponse{Server: g.id}, nil
}
