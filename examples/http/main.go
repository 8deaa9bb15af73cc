// Http runs a small API server that has limits, and two clients of it that live with
// them, and prints what happens.
//
//	go run ./examples/http
//
// The server works on four requests at a time, whoever they come from: others wait.
// Fay has the free plan, three requests a second, and Pat the paid one, six a second.
// Both send more than that at once. What is above the plan gets 429 with Retry-After;
// the clients wait for that long and send it again, until everything has come through.
// In the end the program compares what the clients, the handlers and the limiters have
// counted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"
)

// A load is what a user sends, all at once.
type load struct {
	key      string // the API key
	requests int
}

var loads = []load{{"key-of-fay", 7}, {"key-of-pat", 8}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return runOn(ctx, out, l, new(net.Dialer).DialContext)
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// runOn serves on l, and closes it.
func runOn(ctx context.Context, out io.Writer, l net.Listener, dial dialer) (err error) {
	j := &journal{w: out, began: time.Now()}
	a, err := newAPI()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer a.Close()
	closeServer := serve(l, a.handler)
	defer func() { err = errors.Join(err, closeServer()) }()

	wire := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 32}
	defer wire.CloseIdleConnections()
	url := "http://" + l.Addr().String()
	if err := doors(ctx, wire, url, j); err != nil {
		return err
	}
	tallies, err := burst(ctx, wire, url, j)
	if err != nil {
		return err
	}
	return conclude(j, a, tallies)
}

// serve starts a server, and returns what ends it.
func serve(l net.Listener, h http.Handler) (end func() error) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := server.Shutdown(ctx)
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}
}

// doors tries what the limits have nothing to do with.
func doors(ctx context.Context, wire http.RoundTripper, url string, j *journal) error {
	plain := &http.Client{Transport: wire}
	for _, door := range []struct {
		path, key string
		want      int
	}{
		{"/healthz", "", http.StatusOK},
		{"/orders/1", "no key of ours", http.StatusUnauthorized},
	} {
		status, err := get(ctx, plain, url+door.path, door.key)
		if err != nil {
			return err
		}
		j.line("somebody", "GET %s: %d", door.path, status)
		if status != door.want {
			return fmt.Errorf("GET %s: %d, not %d", door.path, status, door.want)
		}
	}
	return nil
}

// burst sends all loads at once and returns when everything is answered.
func burst(ctx context.Context, wire http.RoundTripper, url string, j *journal) ([]*tally, error) {
	var wg sync.WaitGroup
	tallies := make([]*tally, len(loads))
	for i, load := range loads {
		t := &tally{load: load, user: users[load.key], errs: make([]error, load.requests)}
		tallies[i] = t
		client, err := newClient(wire, t, j)
		if err != nil {
			return nil, err
		}
		p := plans[t.user.plan]
		j.line(t.user.name, "%d requests at once; the %s plan has %d a second", load.requests, t.user.plan, p.TokensPerPeriod)
		for n := range load.requests {
			wg.Go(func() { t.errs[n] = t.order(ctx, client, url, n+1, j) })
		}
	}
	wg.Wait()
	for _, t := range tallies {
		if err := errors.Join(t.errs...); err != nil {
			return nil, err
		}
	}
	return tallies, nil
}

// journal prints lines with the time since it began.
type journal struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
}

func (j *journal) line(who, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.w, "%6dms  %-9s %s\n", time.Since(j.began).Milliseconds(), who, fmt.Sprintf(format, args...))
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.w, format+"\n", args...)
}
