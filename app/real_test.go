package app_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/go-kratos/kratos/v2/log"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/registry/memory"
)

func hostOf(t *testing.T, endpoint string) string {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestKratosServersRunUnderApp runs the real servers of Kratos on loopback,
// calls both, and stops them with a real signal while a request runs.
func TestKratosServersRunUnderApp(t *testing.T) {
	inside := make(chan struct{})
	httpServer := khttp.NewServer(khttp.Address("127.0.0.1:0"))
	httpServer.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		close(inside)
		timer := time.NewTimer(200 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	grpcServer := kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"))
	reg := memory.New()
	up := make(chan struct{})
	a := app.New(app.Name("svc"), app.ID("1"), app.Slog(nil), app.Logger(log.NewStdLogger(io.Discard)), app.Signal(syscall.SIGTERM),
		app.Server(httpServer, grpcServer), app.Registrar(reg), app.PropagationWindow(50*time.Millisecond),
		app.AfterStart(func(context.Context) error { close(up); return nil }))
	result := make(chan error, 1)
	go func() { result <- a.Run() }()
	<-up

	list, err := reg.GetService(t.Context(), "svc")
	if err != nil || len(list) != 1 || len(list[0].Endpoints) != 2 {
		t.Fatalf("registered %v, %v", list, err)
	}
	conn, err := grpc.NewClient(hostOf(t, list[0].Endpoints[1]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reply, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || reply.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health check: %v, %v", reply, err)
	}

	answer := make(chan string, 1)
	go func() {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+hostOf(t, list[0].Endpoints[0])+"/slow", nil)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answer <- string(body)
	}()
	<-inside
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "done" {
		t.Errorf("the request in flight got %q", got)
	}
	if err := <-result; err != nil {
		t.Errorf("Run = %v", err)
	}
	wantFree(t, a)
	if list, err := reg.GetService(t.Context(), "svc"); err != nil || len(list) != 0 {
		t.Errorf("left in the registry: %v, %v", list, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// listenServer is a minimal server on a real socket that knows when it is ready.
type listenServer struct {
	lis   net.Listener
	ready chan struct{}
}

func (s *listenServer) Endpoint() (*url.URL, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.lis = lis
	return &url.URL{Scheme: "tcp", Host: lis.Addr().String()}, nil
}

func (s *listenServer) Ready() <-chan struct{} { return s.ready }

func (s *listenServer) Start(context.Context) error {
	close(s.ready)
	for {
		conn, err := s.lis.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
}

func (s *listenServer) Stop(context.Context) error { return s.lis.Close() }

func TestInvariant08ThousandCyclesLeaveNothing(t *testing.T) {
	cycles := 1000
	if testing.Short() {
		cycles = 50
	}
	reg := memory.New()
	cycle := func(i int) *app.App {
		up := make(chan struct{})
		opts := []app.Option{
			app.Name("svc"), app.Slog(nil), app.Signal(syscall.SIGTERM), app.Registrar(reg), app.PropagationWindow(0),
			app.Server(&listenServer{ready: make(chan struct{})}), app.AfterStart(func(context.Context) error { close(up); return nil }),
		}
		if i%4 == 0 { // a failed start leaves nothing either
			opts = append(opts, app.AfterStart(func(context.Context) error { return errRoot }))
		}
		a := app.New(opts...)
		result := make(chan error, 1)
		go func() { result <- a.Run() }()
		<-up
		if i%4 == 0 {
			wantIs(t, <-result, errRoot)
			return a
		}
		if err := errors.Join(a.Stop(), <-result); err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
		return a
	}
	cycle(1)
	before := runtime.NumGoroutine()
	for i := range cycles {
		a := cycle(i)
		if i%100 == 0 {
			wantFree(t, a)
		}
	}
	after := runtime.NumGoroutine()
	for range 100 { // goroutines that have nothing left to do may still be on their way out
		if after <= before {
			break
		}
		runtime.Gosched()
		after = runtime.NumGoroutine()
	}
	if after > before {
		t.Errorf("%d goroutines before, %d after %d cycles", before, after, cycles)
	}
	if list, err := reg.GetService(t.Context(), "svc"); err != nil || len(list) != 0 {
		t.Errorf("left in the registry: %d, %v", len(list), err)
	}
}
