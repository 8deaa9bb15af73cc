package process

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
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/keyfile"
)

// lookAtFiles is the time between two looks at the files of the certificate.
const lookAtFiles = time.Second

// Listen listens on host:port, or on the socket unix:PATH. The error names what the address comes from: the flag, if it is
// set, or else the field of the file.
func (p *Process) Listen(field, flag, address string) (net.Listener, error) {
	l, err := open(cmp.Or(flag, address))
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

// TLS returns how clients connect; nil: without TLS. The files of the certificate are read again when they change.
func (p *Process) TLS(t *fileconfig.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	var err error
	p.pair, err = keyfile.Load(lookAtFiles, func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		return &pair, err
	}, p.certificateChanged, t.Certificate, t.Key)
	if err != nil {
		return nil, fmt.Errorf("%s.tls: %w", p.Section, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.pair.Get(), nil },
	}, nil
}

// certificateChanged logs a new certificate, or why the old one stays.
func (p *Process) certificateChanged(err error) {
	if err != nil {
		p.Logger.Error("the certificate has changed and cannot be used: the old one stays in force", "error", err)
		return
	}
	p.Logger.Info("the certificate has changed and is in force")
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
