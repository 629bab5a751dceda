package interop_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/testdata"

	"github.com/materpc/materpc/transport/grpc"
)

// pairing is who talks to whom. Nil TLS configurations are plain text.
type pairing struct {
	name   string
	server func(t *testing.T, config *tls.Config, svc testgrpc.TestServiceServer) (addr string)
	client func(t *testing.T, config *tls.Config, addr string) *stdgrpc.ClientConn
}

var pairings = []pairing{
	{"our client, our server", ourServer, ourClient},
	{"our client, plain server", plainServer, ourClient},
	{"plain client, our server", ourServer, plainClient},
}

func ourServer(t *testing.T, config *tls.Config, svc testgrpc.TestServiceServer) string {
	t.Helper()
	srv := grpc.NewServer(grpc.Address("127.0.0.1:0"), grpc.TLSConfig(config))
	testgrpc.RegisterTestServiceServer(srv, svc)
	endpoint, err := srv.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := srv.Stop(t.Context()); err != nil { // whose ctx has ended: abort what a failed case left
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return endpoint.Host
}

func plainServer(t *testing.T, config *tls.Config, svc testgrpc.TestServiceServer) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var opts []stdgrpc.ServerOption
	if config != nil {
		opts = append(opts, stdgrpc.Creds(credentials.NewTLS(config)))
	}
	srv := stdgrpc.NewServer(opts...)
	testgrpc.RegisterTestServiceServer(srv, svc)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func ourClient(t *testing.T, config *tls.Config, addr string) *stdgrpc.ClientConn {
	t.Helper()
	security := grpc.WithInsecure()
	if config != nil {
		security = grpc.WithTLSConfig(config)
	}
	conn, err := grpc.NewClient("direct:///"+addr, security)
	return closing(t, conn, err)
}

func plainClient(t *testing.T, config *tls.Config, addr string) *stdgrpc.ClientConn {
	t.Helper()
	security := insecure.NewCredentials()
	if config != nil {
		security = credentials.NewTLS(config)
	}
	conn, err := stdgrpc.NewClient("passthrough:///"+addr, stdgrpc.WithTransportCredentials(security))
	return closing(t, conn, err)
}

func closing(t *testing.T, conn *stdgrpc.ClientConn, err error) *stdgrpc.ClientConn {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// testTLS returns both sides' configuration with the certificates of grpc-go's
// own tests.
func testTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(testdata.Path("x509/server1_cert.pem"), testdata.Path("x509/server1_key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(testdata.Path("x509/server_ca_cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("no certificate in server_ca_cert.pem")
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}},
		&tls.Config{RootCAs: roots, ServerName: "x.test.example.com"}
}
