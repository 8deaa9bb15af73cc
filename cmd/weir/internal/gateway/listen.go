package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// pingTimeout is how long a client over HTTP/2 can take to answer a ping. It gets one if nothing has come for the time that it has
// for a header: in the middle of a header, a client cannot answer.
const pingTimeout = 5 * time.Second

// newServer returns the server of clients.
func newServer(c gatewayconfig.Gateway, h http.Handler) *http.Server {
	server := &http.Server{
		Handler: h,
		// No ReadTimeout and no WriteTimeout: they would cut streams, uploads and downloads.
		ReadHeaderTimeout: c.ReadHeaderTimeout,
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: c.ReadHeaderTimeout, PingTimeout: pingTimeout},
		ConnContext:       proxy.ConnContext,
		ConnState:         proxy.ConnState,
		// The handler answers "OPTIONS *", too, so that it is measured and logged.
		DisableGeneralOptionsHandler: true,
	}
	if c.H2C {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	return server
}

// listen opens the listener of clients. A request has the context base, which ends when a shutdown cuts it off.
func (g *gateway) listen(base context.Context, c gatewayconfig.Gateway, h *proxy.Handler) (*http.Server, net.Listener, error) {
	server := newServer(c, h)
	server.ErrorLog = g.ServerLog()
	server.BaseContext = func(net.Listener) context.Context { return base }
	if c.TLS != nil {
		pair, err := g.Certificate(*c.TLS)
		if err != nil {
			return nil, nil, err
		}
		server.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			NextProtos:     []string{"h2", "http/1.1"},
			GetCertificate: pair.GetCertificate,
		}
	}
	l, err := g.Listen("listen", g.options.Listen, cmp.Or(g.options.Listen, c.Listen))
	if err != nil {
		return nil, nil, err
	}
	l = proxy.NewListener(l, func(client net.Addr, status int) {
		h.Refused(client, status)
		errorType := ""
		if status >= http.StatusInternalServerError {
			errorType = strconv.Itoa(status)
		}
		g.Telemetry.RecordRequest(base, "_OTHER", "http", "", status, errorType, 0)
	})
	if server.TLSConfig != nil {
		l = tls.NewListener(l, server.TLSConfig)
	}
	return server, l, nil
}
