package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/tlsfiles"
)

// lookAtFiles is the time between two looks at the files of the certificate.
const lookAtFiles = time.Second

// Listen listens on host:port, or on the socket unix:PATH. The error names what the address comes from: the flag, if it is
// set, or else the field of the file.
func (p *Process) Listen(field, flag, address string) (net.Listener, error) {
	l, err := open(address)
	switch {
	case err == nil:
		return l, nil
	case flag != "":
		return nil, fmt.Errorf("-%s: %w", field, err)
	default:
		return nil, fmt.Errorf("%s.%s: %w", p.Section, field, err)
	}
}

// open listens. It removes a socket that a process has left behind: one that refuses connections. Any other error can be
// that of a socket in use, of another user or with a full queue.
func open(address string) (net.Listener, error) {
	path, unix := fileconfig.Socket(address)
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

// Certificate returns the certificate of the files, which [Process.WatchCertificate] reads again.
func (p *Process) Certificate(t fileconfig.TLS) (*tlsfiles.Pair, error) {
	var err error
	if p.pair, err = tlsfiles.Load(t.Certificate, t.Key); err != nil {
		return nil, fmt.Errorf("%s.tls: %w", p.Section, err)
	}
	return p.pair, nil
}

// WatchCertificate reads the files of the certificate again when they change, until ctx ends. Without TLS it does nothing.
func (p *Process) WatchCertificate(ctx context.Context) {
	if p.pair != nil {
		go p.pair.Watch(ctx, lookAtFiles, p.certificateChanged)
	}
}

// certificateChanged logs a new certificate, or why the old one stays.
func (p *Process) certificateChanged(s tlsfiles.Status) {
	if s.Err != nil {
		p.Logger.Error("the certificate has changed and cannot be used: the old one stays in force", "error", s.Err, "expires", s.Expires)
		return
	}
	p.Logger.Info("the certificate has changed and is in force", "certificate", s.Certificate, "expires", s.Expires)
}

// ServerLog returns the log of an HTTP server. What any client can cause is logged at Debug, which is off.
func (p *Process) ServerLog() *log.Logger {
	return log.New(serverLog{p.Logger}, "", 0)
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
