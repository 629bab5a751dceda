package grpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// CertificateFiles are PEM files of an identity and of those it trusts. They
// are read again, at the next handshake, when they have changed; a change that
// cannot be read leaves the last good state in force. Use the result of
// ServerConfig with [TLSConfig], of ClientConfig with [WithTLSConfig].
type CertificateFiles struct {
	// Certificate and Key are the own identity; a client may have none.
	Certificate, Key string
	// Authorities are whom to trust: on a client for servers (default: the
	// system's), on a server for clients, which must then show a certificate.
	Authorities string
}

// ServerConfig reads the files and returns the TLS configuration of a server.
func (f CertificateFiles) ServerConfig() (*tls.Config, error) {
	if f.Certificate == "" || f.Key == "" {
		return nil, errors.New("materpc: CertificateFiles: a server needs both Certificate and Key")
	}
	w, err := f.watch()
	if err != nil {
		return nil, err
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := w.current()
		config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: base.NextProtos, Certificates: []tls.Certificate{*now.identity}}
		if now.authorities != nil {
			config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, now.authorities
		}
		return config, nil
	}
	return base, nil
}

// ClientConfig reads the files and returns the TLS configuration of a client.
func (f CertificateFiles) ClientConfig() (*tls.Config, error) {
	if (f.Certificate == "") != (f.Key == "") {
		return nil, errors.New("materpc: CertificateFiles: Certificate and Key belong together, one is empty")
	}
	w, err := f.watch()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.Certificate != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return w.current().identity, nil }
	}
	if f.Authorities != "" {
		// crypto/tls takes the roots once; ours may change, so the very same
		// verification is done here with the current ones.
		config.InsecureSkipVerify = true
		config.VerifyConnection = w.verifyServer
	}
	return config, nil
}

// certificates is one good state of the files.
type certificates struct {
	identity    *tls.Certificate
	authorities *x509.CertPool
}

type stamp struct {
	modified time.Time
	size     int64
}

// certificateWatch holds the last good state.
type certificateWatch struct {
	files CertificateFiles
	mu    sync.Mutex
	good  *certificates
	seen  [3]stamp // of the last attempt to read, good or not
}

func (f CertificateFiles) watch() (*certificateWatch, error) {
	w := &certificateWatch{files: f, seen: f.stamps()}
	var err error
	w.good, err = f.read()
	return w, err
}

func (w *certificateWatch) current() *certificates {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.files.stamps(); now != w.seen {
		w.seen = now
		if next, err := w.files.read(); err == nil {
			w.good = next
		}
	}
	return w.good
}

func (w *certificateWatch) verifyServer(state tls.ConnectionState) error {
	options := x509.VerifyOptions{DNSName: state.ServerName, Roots: w.current().authorities, Intermediates: x509.NewCertPool()}
	for _, certificate := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(certificate)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err
}

// stamps tells whether the files have changed; a missing file has none.
func (f CertificateFiles) stamps() [3]stamp {
	var all [3]stamp
	for i, name := range []string{f.Certificate, f.Key, f.Authorities} {
		if info, err := os.Stat(name); err == nil {
			all[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return all
}

func (f CertificateFiles) read() (*certificates, error) {
	var state certificates
	var faults []error
	if f.Certificate != "" {
		identity, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
		if err != nil {
			faults = append(faults, fmt.Errorf("materpc: CertificateFiles: Certificate %q with Key %q: %w", f.Certificate, f.Key, err))
		}
		state.identity = &identity
	}
	if f.Authorities != "" {
		pem, err := os.ReadFile(f.Authorities)
		state.authorities = x509.NewCertPool()
		if err == nil && !state.authorities.AppendCertsFromPEM(pem) {
			err = errors.New("holds no PEM certificate")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("materpc: CertificateFiles: Authorities %q: %w", f.Authorities, err))
		}
	}
	return &state, errors.Join(faults...)
}
