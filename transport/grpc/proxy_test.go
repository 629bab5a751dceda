package grpc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
	"github.com/materpc/materpc/transport/grpc"
)

// TestProxyEnvironment runs clients in processes of their own, since Go reads
// the variables once. hello.test exists nowhere: only the proxy can reach it.
func TestProxyEnvironment(t *testing.T) {
	t.Parallel()
	if target := os.Getenv("MATERPC_TEST_PROXIED_TARGET"); target != "" {
		callThroughProxy(t, target)
		return
	}
	server := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	hellov1.RegisterGreeterServer(server, greeter.New("hello-1"))
	endpoint, err := server.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		t.Log("ended:", <-served)
	})
	proxy, asked := connectProxy(t, endpoint.Host)
	for target, proxied := range map[string]bool{
		"dns:///hello.test:80":                     true,
		"passthrough:///hello.test:80":             true,
		"direct:///" + endpoint.Host:               false,
		"static:///" + endpoint.Host + "?weight=1": false,
	} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyEnvironment$")
		child.Env = append(os.Environ(), "MATERPC_TEST_PROXIED_TARGET="+target, "HTTPS_PROXY=http://"+proxy, "NO_PROXY=")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", target, err, out)
		}
		var got string
		select {
		case got = <-asked:
		default:
		}
		if want := map[bool]string{true: "hello.test:80"}[proxied]; got != want {
			t.Errorf("%s: the proxy was asked for %q, want %q", target, got, want)
		}
	}
}

func callThroughProxy(t *testing.T, target string) {
	conn, err := grpc.NewClient(target, grpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := hellov1.NewGreeterClient(conn).SayHello(ctx, &hellov1.SayHelloRequest{Name: "ada"}); err != nil {
		t.Fatal(err)
	}
}

// connectProxy answers CONNECT with a connection to backend, whatever is asked
// for.
func connectProxy(t *testing.T, backend string) (address string, asked <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	names := make(chan string, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go tunnel(conn, backend, names)
		}
	}()
	return listener.Addr().String(), names
}

func tunnel(conn net.Conn, backend string, names chan<- string) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	request, err := http.ReadRequest(reader)
	if err != nil || !strings.EqualFold(request.Method, http.MethodConnect) {
		return
	}
	names <- request.Host
	out, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	if _, err := fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() { _, _ = io.Copy(out, reader) }()
	_, _ = io.Copy(conn, out)
}
