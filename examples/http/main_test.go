package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/limiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const summary = `
                  requests  admitted  rejected  retried  came through
fay, free                7         7         5        5             7
pat, paid                8         8         2        2             8

the bucket of fay granted 7 leases and rejected 5
the bucket of pat granted 8 leases and rejected 2
the 4 slots granted 15 leases and rejected 0: a request that a bucket rejects gives its slot back and does not count
never more than 4 requests were worked on at a time
all requests came through in the end, and all counts agree
`

func TestRunOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newPipes()
		began := time.Now()
		if err := runOn(t.Context(), &out, l, l.dial); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("took %v: seven requests of the free plan take two seconds, and jitter", took)
		}
		if !strings.HasSuffix(out.String(), summary) {
			t.Error("the summary is another")
		}
		if t.Failed() {
			t.Log("\n" + out.String())
		}
	})
}

// With a real network there is no fake time, so this takes two seconds. A slow machine can spread the requests
// differently, so only the program itself compares counts.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestRunOn_Interrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without a deadline: a retry does not begin a wait that outlasts one.
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(500*time.Millisecond, cancel).Stop()
		var out bytes.Buffer
		l := newPipes()
		if err := runOn(ctx, &out, l, l.dial); !errors.Is(err, context.Canceled) {
			t.Errorf("%v\n%s", err, out.String())
		}
	})
}

func TestConclude_CountsThatDiffer(t *testing.T) {
	a, err := newAPI()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var out bytes.Buffer
	lost := &tally{load: load{"key-of-fay", 3}, user: users["key-of-fay"]}
	lost.through.Add(2)
	a.admitted["fay"], a.busiest = 100, slots+1
	if lease, err := a.slots.TryAcquire(t.Context(), 1); err != nil || !lease.Acquired() {
		t.Fatal(err)
	}
	err = conclude(&journal{w: &out, began: time.Now()}, a, []*tally{lost})
	if err == nil {
		t.Fatal(out.String())
	}
	for _, want := range []string{
		"3 requests, but 2 came through", "3 requests, but 100 were admitted", "nothing was rejected", "the plan allows 3",
		"3 slots of 4 are free", "5 requests were worked on at a time", "the slots have other counts",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if strings.Contains(out.String(), "all counts agree") {
		t.Error(out.String())
	}
}

func TestAPI_Headers(t *testing.T) {
	a, err := newAPI()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r := httptest.NewRequest(http.MethodGet, "/orders/7", nil)
	r.Header.Set("X-Api-Key", "key-of-pat")
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if policy, left := w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"); policy != `"paid";q=6;w=1` || !strings.HasPrefix(left, `"paid";r=5`) {
		t.Errorf("%s and %s", policy, left)
	}
	if s := a.slots.Statistics(); s != (limiter.Statistics{AvailablePermits: slots, SuccessfulLeases: 1}) {
		t.Errorf("%+v", s)
	}
}

// pipes is a network inside the process, which works with fake time.
type pipes struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn)}
	p.closed, p.close = context.WithCancel(context.Background())
	return p
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "server"} }
