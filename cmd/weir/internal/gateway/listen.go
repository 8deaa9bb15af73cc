package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// listen opens the listener of clients. A request has the context base, which ends when a shutdown cuts it off.
func (g *gateway) listen(base context.Context, c gatewayconfig.Gateway, h http.Handler) (*http.Server, net.Listener, error) {
	server := &http.Server{
		Handler: weirhttp.Measure(g.Telemetry, nil)(h),
		// No ReadTimeout and no WriteTimeout: they would cut streams, uploads and downloads.
		ReadHeaderTimeout: c.ReadHeaderTimeout,
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		ErrorLog:          g.ServerLog(),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	if c.H2C {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
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
	l = proxy.NewListener(l)
	if server.TLSConfig != nil {
		l = tls.NewListener(l, server.TLSConfig)
	}
	return server, l, nil
}
