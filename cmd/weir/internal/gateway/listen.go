package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/tlsfiles"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// lookAtFiles is the time between two looks at the files of the certificate.
const lookAtFiles = time.Second

// listen opens the listener of clients. A request has the context base, which ends when a shutdown cuts it off.
func (g *gateway) listen(base context.Context, c gatewayconfig.Gateway, h http.Handler) (*http.Server, net.Listener, error) {
	server := &http.Server{
		Handler: weirhttp.Measure(g.telemetry, nil)(h),
		// No ReadTimeout and no WriteTimeout: they would cut streams, uploads and downloads.
		ReadHeaderTimeout: c.ReadHeaderTimeout,
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		ErrorLog:          g.serverLog(),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	if c.H2C {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	if c.TLS != nil {
		var err error
		if g.pair, err = tlsfiles.Load(c.TLS.Certificate, c.TLS.Key); err != nil {
			return nil, nil, fmt.Errorf("gateway.tls: %w", err)
		}
		server.TLSConfig = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			NextProtos:     []string{"h2", "http/1.1"},
			GetCertificate: g.pair.GetCertificate,
		}
	}
	l, err := open(cmp.Or(g.options.Listen, c.Listen))
	if err != nil {
		return nil, nil, addressError("listen", g.options.Listen, err)
	}
	l = proxy.NewListener(l)
	if server.TLSConfig != nil {
		l = tls.NewListener(l, server.TLSConfig)
	}
	return server, l, nil
}

// addressError names what an address comes from: the flag, if it is set, or the field of the file.
func addressError(name, flag string, err error) error {
	if flag != "" {
		return fmt.Errorf("-%s: %w", name, err)
	}
	return fmt.Errorf("gateway.%s: %w", name, err)
}

// open listens on host:port, or on the socket unix:PATH. It removes a socket that a process has left behind: one that refuses
// connections. Any other error can be that of a socket in use, of another user or with a full queue.
func open(address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		return net.Listen("tcp", address)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = c.Close()
			return nil, errors.New("listen " + address + ": another process listens there")
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = os.Remove(path)
		}
		if err != nil {
			return nil, fmt.Errorf("listen %s: the socket cannot be replaced: %w", address, err)
		}
	}
	return net.Listen("unix", path)
}

// certificateChanged logs a new certificate, or why the old one stays.
func (g *gateway) certificateChanged(s tlsfiles.Status) {
	if s.Err != nil {
		g.logger.Error("the certificate has changed and cannot be used: the old one stays in force", "error", s.Err, "expires", s.Expires)
		return
	}
	g.logger.Info("the certificate has changed and is in force", "certificate", s.Certificate, "expires", s.Expires)
}

// serverLog returns the log of the HTTP servers. What any client can cause is logged at Debug, which is off.
func (g *gateway) serverLog() *log.Logger {
	return log.New(serverLog{g.logger}, "", 0)
}

type serverLog struct{ logger *slog.Logger }

func (l serverLog) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	level := slog.LevelWarn
	if strings.HasPrefix(text, "http: TLS handshake error") || strings.HasPrefix(text, "http2: ") {
		level = slog.LevelDebug
	}
	l.logger.Log(context.Background(), level, text)
	return len(p), nil
}
