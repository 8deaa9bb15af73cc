package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	// maxIdlePerHost is how many connections to an address wait for requests. net/http keeps 2, so that a gateway would
	// connect for nearly every request of a burst.
	maxIdlePerHost  = 1024
	idleTimeout     = time.Minute
	continueTimeout = time.Second
	maxHeaderBytes  = 256 << 10
	keepAlive       = 15 * time.Second
)

// TransportOptions are the options of the connections to an upstream. They are comparable: a reload that leaves them as
// they are keeps the connections.
type TransportOptions struct {
	DialTimeout           time.Duration // to connect, TLS included
	ResponseHeaderTimeout time.Duration // until the answer begins; 0: no limit
	MaxConnections        int           // to each address; 0: no limit
	// H2C means HTTP/2 without TLS to addresses with the scheme http.
	H2C bool
	// CA, ServerName, Certificate and Key are for addresses with the scheme https: the file of the authorities to
	// trust, the name in the certificate of the server, and the files of the gateway's own certificate. All can be
	// empty.
	CA, ServerName, Certificate, Key string
}

// A Transport has the connections to the addresses of an upstream.
type Transport struct{ http.Transport }

// NewTransport returns a Transport. The error is that of reading the files.
func NewTransport(o TransportOptions) (*Transport, error) {
	t := &Transport{http.Transport{
		DialContext: (&net.Dialer{Timeout: o.DialTimeout, KeepAlive: keepAlive}).DialContext,
		// The client says which encodings it accepts, and gets the body as the upstream sends it.
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxConnsPerHost:        o.MaxConnections,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    o.DialTimeout,
		ResponseHeaderTimeout:  o.ResponseHeaderTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		TLSClientConfig:        &tls.Config{ServerName: o.ServerName, MinVersion: tls.VersionTLS12},
	}}
	if o.H2C {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
		t.Protocols.SetHTTP2(true)
	}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: must have certificates in PEM form", o.CA)
		}
	}
	if o.Certificate != "" {
		own, err := tls.LoadX509KeyPair(o.Certificate, o.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", o.Certificate, o.Key, err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{own}
	}
	return t, nil
}

// Close closes the connections that are not in use. Others are closed a minute after their request has ended.
func (t *Transport) Close() error {
	t.CloseIdleConnections()
	return nil
}
