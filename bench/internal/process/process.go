// Package process starts the servers that benchmarks measure, each a process of its own.
package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Process is a server that runs. Make one with [Start], and stop it.
type Process struct {
	Address string
	command *exec.Cmd
	log     log
	ended   chan struct{} // closed when it has ended
	err     error         // how it has ended
}

// Start starts a server, and waits until it accepts connections at the address. What it writes is in the errors.
func Start(ctx context.Context, address string, command *exec.Cmd) (*Process, error) {
	p := &Process{Address: address, command: command, ended: make(chan struct{})}
	command.Stderr, command.Stdout = &p.log, &p.log
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.err = command.Wait()
	}()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return p, nil
		}
		select {
		case <-p.ended:
			return nil, p.Wrap(fmt.Errorf("%s ended: %w", command.Path, cmp.Or(p.err, errors.New("without an error"))))
		default:
		}
		if time.Since(began) > 20*time.Second || ctx.Err() != nil {
			p.Stop()
			return nil, p.Wrap(fmt.Errorf("%s does not listen: %w", command.Path, cmp.Or(ctx.Err(), context.DeadlineExceeded)))
		}
	}
}

// Stop ends the server, and kills it if that takes longer than three seconds.
func (p *Process) Stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(3 * time.Second):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

// CPU returns the processor time that the server has used, as /proc of Linux tells it; elsewhere 0.
func (p *Process) CPU() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // a clock tick
}

// Wrap returns err with what the server has written.
func (p *Process) Wrap(err error) error {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	return fmt.Errorf("%w\n%s", err, p.log.text.Bytes())
}

// FreeAddress returns an address of this machine on which no server listens.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// A log keeps the beginning of what a process writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < 1<<16 {
		l.text.Write(b)
	}
	return len(b), nil
}
