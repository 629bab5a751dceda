package grpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/materpc/materpc"
	hello "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// authority signs test identities.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t: t, key: key, cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// identity writes a certificate for a DNS name and, if given, a SPIFFE id.
func (a *authority) identity(dir, dns, spiffe string) grpc.CertificateFiles {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{dns}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if spiffe != "" {
		u, err := url.Parse(spiffe)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	files := grpc.CertificateFiles{
		Certificate: filepath.Join(dir, dns+".pem"), Key: filepath.Join(dir, dns+".key"), Authorities: filepath.Join(dir, dns+".ca"),
	}
	a.write(files.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(files.Key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	a.write(files.Authorities, a.pem)
	return files
}

func (a *authority) write(name string, data []byte) {
	a.t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

type identityGreeter struct {
	hello.UnimplementedGreeterServer
}

func (identityGreeter) SayHello(ctx context.Context, _ *hello.SayHelloRequest) (*hello.SayHelloResponse, error) {
	info, _ := materpc.FromContext(ctx)
	return &hello.SayHelloResponse{Message: info.Identity()}, nil
}

// TestCertificatesReload moves a fleet from one authority to another without
// restarting anything: new handshakes use what the files say now.
func TestCertificatesReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, next := newAuthority(t, "old"), newAuthority(t, "next")
	serverFiles := old.identity(dir, "orders", "")
	clientFiles := old.identity(dir, "shop", "spiffe://fleet/shop")
	serverTLS, err := serverFiles.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	clientTLS, err := clientFiles.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	clientTLS.ServerName = "orders"
	srv := grpc.NewServer(grpc.Address("127.0.0.1:0"), grpc.TLSConfig(serverTLS))
	hello.RegisterGreeterServer(srv, identityGreeter{})
	endpoint, err := srv.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	if endpoint.Scheme != "grpcs" {
		t.Errorf("endpoint %v, want scheme grpcs", endpoint)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := srv.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	call := func() (string, error) {
		conn, err := grpc.NewClient("direct:///"+endpoint.Host, grpc.WithTLSConfig(clientTLS))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		reply, err := hello.NewGreeterClient(conn).SayHello(t.Context(), &hello.SayHelloRequest{})
		return reply.GetMessage(), err
	}
	if who, err := call(); err != nil || who != "spiffe://fleet/shop" {
		t.Fatalf("first call: %q, %v; want the caller's SPIFFE id", who, err)
	}
	next.identity(dir, "orders", "")
	if who, err := call(); err == nil {
		t.Errorf("a server of an authority that the client does not trust answered %q", who)
	}
	next.identity(dir, "shop", "spiffe://fleet/shop2")
	if who, err := call(); err != nil || who != "spiffe://fleet/shop2" {
		t.Errorf("after the move: %q, %v", who, err)
	}
	old.write(serverFiles.Certificate, []byte("no PEM"))
	if who, err := call(); err != nil || who != "spiffe://fleet/shop2" {
		t.Errorf("with an unreadable file: %q, %v; want the last good state", who, err)
	}
}

func TestCertificateFilesNameAllFaults(t *testing.T) {
	t.Parallel()
	_, err := grpc.CertificateFiles{Certificate: "no.pem", Key: "no.key", Authorities: "no.ca"}.ServerConfig()
	if err == nil || !strings.Contains(err.Error(), "no.pem") || !strings.Contains(err.Error(), "no.ca") {
		t.Errorf("err = %v, want both faults named", err)
	}
	if _, err := (grpc.CertificateFiles{Certificate: "a.pem"}).ClientConfig(); err == nil {
		t.Error("a certificate without a key was taken")
	}
	if _, err := (grpc.CertificateFiles{Authorities: "a.ca"}).ServerConfig(); err == nil {
		t.Error("a server without a certificate was taken")
	}
}
