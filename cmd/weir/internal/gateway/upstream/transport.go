package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/keyfile"
)

const (
	// maxIdlePerHost is how many connections to an address wait for requests. net/http keeps 2, so that a gateway would
	// connect for nearly every request of a burst.
	maxIdlePerHost  = 1024
	idleTimeout     = time.Minute
	continueTimeout = time.Second
	maxHeaderBytes  = 256 << 10
	keepAlive       = 15 * time.Second
	// A connection of HTTP/2 on which nothing has come for pingAfter is asked whether it is alive, and closed if it does not
	// answer within pingTimeout. It has all requests to an address: if the server goes away without a word, as a machine that
	// loses its power does, they would fail until TCP gives up, after a quarter of an hour.
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
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
	dialer := &net.Dialer{Timeout: o.DialTimeout, KeepAlive: keepAlive}
	t := &Transport{http.Transport{
		DialContext: dialer.DialContext,
		// The client says which encodings it accepts, and gets the body as the upstream sends it.
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxConnsPerHost:        o.MaxConnections,
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  o.ResponseHeaderTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		TLSClientConfig: &tls.Config{
			ServerName: o.ServerName, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		},
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}}
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialTLS(ctx, &tls.Dialer{NetDialer: dialer, Config: t.TLSClientConfig}, network, address)
	}
	if o.H2C {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
		t.Protocols.SetHTTP2(true)
	}
	if o.CA != "" {
		var err error
		if t.TLSClientConfig.RootCAs, err = keyfile.Authorities(o.CA); err != nil {
			return nil, err
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

// dialTLS connects, TLS included, within the timeout of the dialer. The error of a handshake is one of connecting, too: nothing
// of a request was sent, so it can go to the next address.
func dialTLS(ctx context.Context, d *tls.Dialer, network, address string) (net.Conn, error) {
	if timeout := d.NetDialer.Timeout; timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	c, err := d.DialContext(ctx, network, address)
	if err != nil && !NotSent(err) {
		err = &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return c, err
}

// Close closes the connections that are not in use. Others are closed a minute after their request has ended.
func (t *Transport) Close() error {
	t.CloseIdleConnections()
	return nil
}
