package greeter_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
)

// dial starts a plain gRPC server with one Greeter and returns its client.
func dial(t *testing.T) hellov1.GreeterClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	hellov1.RegisterGreeterServer(server, greeter.New("one"))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///buffer",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return hellov1.NewGreeterClient(conn)
}

func TestSayHello(t *testing.T) {
	client := dial(t)
	out, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{Name: "ada"})
	if err != nil || out.GetMessage() != "Hello, ada!" || out.GetServer() != "one" {
		t.Errorf("got %v, %v", out, err)
	}
	_, err = client.SayHello(t.Context(), &hellov1.SayHelloRequest{})
	wantInvalid(t, "empty name", err)
}

func TestListHellos(t *testing.T) {
	client := dial(t)
	stream, err := client.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada", Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if out, err := stream.Recv(); err != nil || out.GetMessage() != "Hello, ada!" || out.GetServer() != "one" {
			t.Errorf("greeting %d: got %v, %v", i, out, err)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last greeting: %v, want EOF", err)
	}
	for name, in := range map[string]*hellov1.ListHellosRequest{
		"empty name":     {Count: 1},
		"too many asked": {Name: "ada", Count: greeter.MaxHellos + 1},
	} {
		stream, err := client.ListHellos(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		wantInvalid(t, name, err)
	}
}

func TestCollectNames(t *testing.T) {
	client := dial(t)
	for _, c := range []struct {
		name  string
		names []string
		want  string
	}{
		{"two", []string{"ada", "grace"}, "Hello, ada, grace!"},
		{"none", nil, ""},
		{"one of them empty", []string{"ada", "", "grace"}, ""},
		{"too many", slices.Repeat([]string{"ada"}, greeter.MaxNames+1), ""},
	} {
		stream, err := client.CollectNames(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range c.names {
			if err := stream.Send(&hellov1.CollectNamesRequest{Name: name}); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
		out, err := stream.CloseAndRecv()
		switch {
		case c.want == "":
			wantInvalid(t, c.name, err)
		case err != nil || out.GetMessage() != c.want || int(out.GetCount()) != len(c.names) || out.GetServer() != "one":
			t.Errorf("%s: got %v, %v", c.name, out, err)
		}
	}
}

func TestChat(t *testing.T) {
	stream, err := dial(t).Chat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ada", "grace"} {
		if err := stream.Send(&hellov1.ChatRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
		if out, err := stream.Recv(); err != nil || out.GetMessage() != "Hello, "+name+"!" || out.GetServer() != "one" {
			t.Errorf("%s: got %v, %v", name, out, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after closing: %v, want EOF", err)
	}
}

func wantInvalid(t *testing.T, name string, err error) {
	t.Helper()
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("%s: error %v, want InvalidArgument", name, err)
	}
}
