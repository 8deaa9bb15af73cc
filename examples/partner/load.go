package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// clientTimeout bounds a request. It is longer than a call of the limiter, so that the instance can say what went wrong.
const clientTimeout = 2 * callTimeout

// maxOpen bounds how many requests a load has open. A request that is due while so many are open is not sent.
const maxOpen = 2000

// A target is an instance that gets a load of its own.
type target struct{ name, url string }

// loads are what is sent. Each target gets all of gets and posts. A request is sent when it is due, whether earlier
// requests have an answer or not, as users do who do not know of each other.
type loads struct {
	targets     []target
	gets, posts profile
	users       []string
	wire        http.RoundTripper // nil: a transport for the run
}

// A sample is a request with its answer. Times count from the start of the load.
type sample struct {
	target              int
	post                bool
	user                string
	due, sent, answered time.Duration
	status              int           // 0: there was no answer
	failure             string        // why the request was neither granted nor rejected; "" if it was
	limiter             time.Duration // what the limiter took
	asked               bool          // the limiter was asked
	now                 time.Time     // of a success: the clock of PostgreSQL, after the limiter's decision
}

func (s *sample) succeeded() bool { return s.failure == "" && s.status != http.StatusTooManyRequests }
func (s *sample) rejected() bool  { return s.status == http.StatusTooManyRequests }

// An observer follows a load while it runs. Its methods are called from many goroutines.
type observer interface {
	sending(target int, post bool)
	answered(s sample)
	skipped(target int)
}

// run sends everything and returns when all is answered, or ctx is done. The observer gets each answer. clock is
// PostgreSQL's clock before the first GET.
func (l *loads) run(ctx context.Context, o observer, began func(start time.Time)) (clock time.Time, err error) {
	client := &http.Client{Transport: l.wire, Timeout: clientTimeout}
	if l.wire == nil {
		client.Transport = &http.Transport{MaxIdleConnsPerHost: maxOpen, DisableCompression: true}
		defer client.CloseIdleConnections()
	}
	sender := sender{client: client, observer: o, start: time.Now()}
	if clock, err = sender.first(ctx, l); err != nil {
		return clock, err
	}
	sender.start = time.Now()
	began(sender.start)
	var wg sync.WaitGroup
	for i, t := range l.targets {
		open := new(atomic.Int64)
		wg.Go(func() { sender.send(ctx, l, i, t, open, l.gets, false) })
		wg.Go(func() { sender.send(ctx, l, i, t, open, l.posts, true) })
	}
	wg.Wait()
	return clock, context.Cause(ctx)
}

type sender struct {
	client   *http.Client
	observer observer
	start    time.Time
}

// first sends the first POST to each target, and returns the earliest time that PostgreSQL has told. A target that does not
// answer is an error now, not a table of errors later.
func (s *sender) first(ctx context.Context, l *loads) (clock time.Time, err error) {
	for i, t := range l.targets {
		a := s.ask(ctx, i, t, true, l.users[0], time.Since(s.start))
		if a.failure == interrupted {
			return clock, context.Cause(ctx)
		}
		if !a.succeeded() {
			return clock, fmt.Errorf("instance %s: POST %s/items/create: %s", t.name, t.url, a.failure)
		}
		s.observer.sending(i, true)
		s.observer.answered(a)
		if i == 0 || a.now.Before(clock) {
			clock = a.now
		}
	}
	return clock, nil
}

// send sends one profile to one target, and returns when all is answered.
func (s *sender) send(ctx context.Context, l *loads, i int, t target, open *atomic.Int64, p profile, post bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	first := 0
	if post {
		first = 1 // the first is sent already
	}
	for n := first; n < p.requests(); n++ {
		due := p.due(n)
		timer.Reset(time.Until(s.start.Add(due)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if open.Load() >= maxOpen {
			s.observer.skipped(i)
			continue
		}
		open.Add(1)
		s.observer.sending(i, post)
		wg.Go(func() {
			defer open.Add(-1)
			s.observer.answered(s.ask(ctx, i, t, post, l.users[n%len(l.users)], due))
		})
	}
}

// ask sends a request and returns what became of it.
func (s *sender) ask(ctx context.Context, i int, t target, post bool, user string, due time.Duration) sample {
	a := sample{target: i, post: post, user: user, due: due, sent: time.Since(s.start)}
	err := s.exchange(ctx, t, &a)
	a.answered = time.Since(s.start)
	switch {
	case err != nil && ctx.Err() != nil:
		a.failure = interrupted
	case err != nil:
		a.failure = failureOf(err)
	}
	return a
}

func (s *sender) exchange(ctx context.Context, t target, a *sample) error {
	method, path, body := http.MethodGet, "/items/"+a.user, []byte(nil)
	if a.post {
		method, path = http.MethodPost, "/items/create"
		body, _ = json.Marshal(map[string]string{"user": a.user, "name": "an item"}) // cannot fail
	}
	r, err := http.NewRequestWithContext(ctx, method, t.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	a.status = resp.StatusCode
	a.limiter, a.asked = limiterTime(resp.Header)
	switch a.status {
	case http.StatusOK, http.StatusCreated:
		var body answer
		if err := json.Unmarshal(text, &body); err != nil || body.Now.IsZero() {
			return errors.New("an answer that is not from this program")
		}
		a.now = body.Now
	case http.StatusTooManyRequests:
	default:
		if cause := resp.Header.Get(limiterError); cause != "" {
			return failure(cause)
		}
		return failure(fmt.Sprintf("status %d", a.status))
	}
	return nil
}

// A failure is the name of what went wrong, as it is counted.
type failure string

func (f failure) Error() string { return string(f) }

func failureOf(err error) string {
	if f, ok := errors.AsType[failure](err); ok {
		return string(f)
	}
	if e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && e.Timeout() {
		return "no answer"
	}
	// Without the method and the URL, which differ for each user.
	text := err.Error()
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}
