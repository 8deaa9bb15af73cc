package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirhttp"
)

const mostUsers = 500

// overHTTP runs a server behind limits, and clients that abort, send slowly, and reuse their requests.
func overHTTP(ctx context.Context, s *soak) error {
	slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 10, QueueLimit: 20}))
	perUser := weir.Must(weirhttp.PerKey(limiter.FactoryFor[string](limiter.PerSecond(1000, 5)), &limiter.PartitionedOptions{
		MaxPartitions: mostUsers, IdleTimeout: 100 * time.Millisecond,
	}))
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Global: weirhttp.Policy{Limit: weirhttp.Of(slots), MaxWait: 20 * time.Millisecond},
		Policies: map[string]weirhttp.Policy{
			"per-user": {Limit: weirhttp.ByKey(perUser, func(r *http.Request) string {
				misbehave(5000)
				return r.Header.Get("User")
			})},
			"slow": {Limit: weirhttp.Of(limiter.NewUnlimited()), Timeout: 30 * time.Millisecond},
		},
		Headers: weirhttp.Draft11,
		Body:    weirhttp.ProblemJSON,
	}))
	server := &http.Server{
		Handler:     limits.Handler(handler(s.heldCheck("slots of the server", 10)), "per-user", "slow"),
		ReadTimeout: time.Second, WriteTimeout: time.Second, ErrorLog: log.New(io.Discard, "", 0),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	sendRequests(ctx, s, "http://"+listener.Addr().String(), perUser)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = server.Shutdown(ctx)
	if end := <-served; err != nil || !errors.Is(end, http.ErrServerClosed) {
		return errors.Join(err, end)
	}
	if st := slots.Statistics(); st.AvailablePermits != 10 || st.QueuedPermits != 0 {
		s.violation("http: %+v once nothing runs, the limit is 10", st)
	}
	return errors.Join(slots.Close(), perUser.Close())
}

// sendRequests runs the clients until ctx ends, and checks the number of partitions meanwhile.
func sendRequests(ctx context.Context, s *soak, url string, perUser *limiter.PartitionedLimiter[string, string]) {
	base := &http.Transport{MaxIdleConnsPerHost: 32}
	defer base.CloseIdleConnections()
	p := weir.Must(pipeline.New("client",
		retry.New(&retry.Options{MaxRetries: 2, Delay: time.Millisecond, Jitter: true, IgnoreRetryAfter: true}),
		hedge.New(&hedge.Options{Delay: time.Millisecond}),
	))
	resilient := &http.Client{Transport: weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base}))}
	answers, failures := s.count("answers"), s.count("requests that failed")
	tally := func(err error) {
		if err != nil {
			failures.Add(1)
		} else {
			answers.Add(1)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				tally(abortedRequest(ctx, &http.Client{Transport: base}, url))
			}
		})
	}
	for i := range 4 {
		wg.Go(func() { // sends the same request again and again, and changes it after the answer has been closed
			r := weir.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
			for pause(ctx, 2*time.Millisecond) {
				r.Header.Set("User", fmt.Sprint("regular ", i))
				r.Header["Attempt"] = append(r.Header["Attempt"][:0], fmt.Sprint(rand.IntN(1000)))
				answer, err := resilient.Do(r)
				if err == nil {
					_, err = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
				tally(err)
			}
		})
	}
	for pause(ctx, time.Second) {
		if n := perUser.Len(); n > mostUsers {
			s.violation("http: there are %d partitions, the bound is %d", n, mostUsers)
		}
	}
	wg.Wait()
}

// handler reads, works and writes, and panics in some requests.
func handler(held *heldCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held.take(1)
		defer held.release(1)
		_, _ = io.Copy(io.Discard, r.Body)
		pause(r.Context(), 5*time.Millisecond)
		switch rand.IntN(100) {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			panic(errHook)
		case 2:
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write(make([]byte, rand.IntN(10_000)))
		_ = http.NewResponseController(w).Flush()
	})
}

// abortedRequest sends one request and aborts it at a random moment, perhaps in the middle of the answer.
func abortedRequest(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+rand.IntN(50))*time.Millisecond)
	defer cancel()
	var body io.Reader
	if rand.IntN(3) == 0 {
		body = slowBody{ctx, bytes.NewReader(make([]byte, rand.IntN(100_000)))}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	r.Header.Set("User", fmt.Sprint("user ", rand.IntN(4*mostUsers)))
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.CopyN(io.Discard, answer.Body, int64(rand.IntN(10_000)))
	return err
}

// A slowBody is a request body that is sent slowly.
type slowBody struct {
	ctx  context.Context
	from io.Reader
}

func (s slowBody) Read(b []byte) (int, error) {
	pause(s.ctx, 5*time.Millisecond)
	return s.from.Read(b[:min(len(b), 8192)])
}
