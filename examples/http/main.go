// Http runs a small API server with limits and two clients that retry, and prints what happens.
//
//	go run ./examples/http
//
// The server works on four requests at a time, and others wait. Fay has the free plan, three requests a second, and Pat
// the paid plan, six a second. Both send more than that at once. Requests above the plan get 429 with Retry-After; the
// clients wait for that long and send them again, until all have succeeded. In the end the program compares the counts
// of the clients, the handlers and the limiters.
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
	if err := checkUnlimited(ctx, wire, url, j); err != nil {
		return err
	}
	tallies, err := burst(ctx, wire, url, j)
	if err != nil {
		return err
	}
	return conclude(j, a, tallies)
}

// serve starts a server, and returns a function that shuts it down.
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

// checkUnlimited sends requests that no limit applies to.
func checkUnlimited(ctx context.Context, wire http.RoundTripper, url string, j *journal) error {
	plain := &http.Client{Transport: wire}
	for _, c := range []struct {
		path, key string
		want      int
	}{
		{"/healthz", "", http.StatusOK},
		{"/orders/1", "an unknown key", http.StatusUnauthorized},
	} {
		status, err := get(ctx, plain, url+c.path, c.key)
		if err != nil {
			return err
		}
		j.line("anyone", "GET %s: %d", c.path, status)
		if status != c.want {
			return fmt.Errorf("GET %s: %d, not %d", c.path, status, c.want)
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

// A journal prints lines with the time since it began.
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
