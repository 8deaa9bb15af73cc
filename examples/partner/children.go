package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A child is an instance that this program has started: the same program again, as a process of its own.
type child struct {
	target
	stdin  io.Closer
	said   *tail
	kill   func() error
	ended  chan struct{} // closed when the process has ended
	result error         // of the process, once it has ended
}

// startChild starts "partner serve" and waits until it listens. The child ends when its standard input ends, so it does
// not outlive this process, whatever this process dies of.
func startChild(ctx context.Context, name, postgres string, log io.Writer, arguments ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"serve", "-with-parent", "-name", name}, arguments...)...)
	c := &child{target: target{name: name}, said: &tail{}, ended: make(chan struct{})}
	cmd.Env = append(os.Environ(), postgresURL+"="+postgres)
	cmd.Stderr = io.MultiWriter(c.said, &lines{to: log})
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.kill = cmd.Process.Kill
	stop := context.AfterFunc(ctx, func() { _ = c.stdin.Close() })
	defer stop()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		defer close(c.ended)
		c.result = cmd.Wait()
	}()
	if err != nil {
		c.stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, c.failed()
	}
	c.url = "http://" + strings.TrimSpace(address)
	return c, nil
}

// stop ends the child, and kills it if it takes too long.
func (c *child) stop() {
	_ = c.stdin.Close()
	timeout := time.NewTimer(2 * callTimeout)
	defer timeout.Stop()
	select {
	case <-c.ended:
	case <-timeout.C:
		_ = c.kill()
		<-c.ended
	}
}

// failed is the error of a child that has ended by itself.
func (c *child) failed() error {
	how := "exit status 0"
	if c.result != nil {
		how = c.result.Error()
	}
	return fmt.Errorf("instance %s has ended by itself (%s); it said:\n%s", c.name, how, c.said)
}

// stopAll stops all children at the same time.
func stopAll(children []*child) {
	var wg sync.WaitGroup
	for _, c := range children {
		wg.Go(c.stop)
	}
	wg.Wait()
}

// A tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// lines passes on whole lines only, so that those of two instances are not mixed.
type lines struct {
	to   io.Writer
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	if end := bytes.LastIndexByte(l.rest, '\n') + 1; end > 0 {
		if _, err := l.to.Write(l.rest[:end]); err != nil {
			return 0, err
		}
		l.rest = append(l.rest[:0], l.rest[end:]...)
	}
	return len(p), nil
}
