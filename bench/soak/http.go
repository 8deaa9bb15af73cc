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
	defer func() { _ = slots.Close() }()
	perUser, err := weirhttp.PerKey(limiter.FactoryFor[string](bucketOf(5)), &limiter.PartitionedOptions{
		MaxPartitions: mostUsers, IdleTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer func() { _ = perUser.Close() }()
	limited, err := limitedHandler(s, slots, perUser)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: limited, ReadTimeout: time.Second, WriteTimeout: time.Second, ErrorLog: log.New(io.Discard, "", 0),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := sendRequests(ctx, s, "http://"+listener.Addr().String(), perUser); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if st := slots.Statistics(); st.AvailablePermits != 10 || st.QueuedPermits != 0 {
		s.violation("http: %+v once nothing runs, the limit is 10", st)
	}
	return nil
}

// limitedHandler returns the handler of the server with its limits.
func limitedHandler(s *soak, slots limiter.Limiter, perUser *limiter.PartitionedLimiter[string, string]) (http.Handler, error) {
	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
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
	})
	if err != nil {
		return nil, err
	}
	return limits.Handler(handler(s.heldCheck("slots of the server", 10)), "per-user", "slow"), nil
}

// sendRequests runs the clients until ctx ends, and checks the number of partitions meanwhile.
func sendRequests(ctx context.Context, s *soak, url string, perUser *limiter.PartitionedLimiter[string, string]) error {
	base := &http.Transport{MaxIdleConnsPerHost: 32}
	defer base.CloseIdleConnections()
	client, err := resilient(base)
	if err != nil {
		return err
	}
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
		wg.Go(func() { tally(repeatedRequest(ctx, client, url, fmt.Sprint("regular ", i), tally)) })
	}
	for pause(ctx, time.Second) {
		if n := perUser.Len(); n > mostUsers {
			s.violation("http: there are %d partitions, the bound is %d", n, mostUsers)
		}
	}
	wg.Wait()
	return nil
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

// resilient returns a client that retries and hedges.
func resilient(base http.RoundTripper) (*http.Client, error) {
	p, err := pipeline.New("client",
		retry.New(&retry.Options{MaxRetries: 2, Delay: time.Millisecond, Jitter: true, IgnoreRetryAfter: true}),
		hedge.New(&hedge.Options{Delay: time.Millisecond}),
	)
	if err != nil {
		return nil, err
	}
	transport, err := weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
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

// repeatedRequest sends the same request again and again, and changes it after the answer has been closed.
func repeatedRequest(ctx context.Context, client *http.Client, url, user string, tally func(error)) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	for err == nil && ctx.Err() == nil {
		r.Header.Set("User", user)
		r.Header["Attempt"] = append(r.Header["Attempt"][:0], fmt.Sprint(rand.IntN(1000)))
		answer, failed := client.Do(r)
		if failed == nil {
			_, failed = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		tally(failed)
		pause(ctx, 2*time.Millisecond)
	}
	return err
}
