package readme

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// The tables of docs/concepts.md, "What the order does": a row is one execution of a pipeline, and its cells are what a
// server, a bucket and a circuit recorded, and what the execution returned. The orders, and what they mean, stand on the page only.

// usual is the order that the page recommends.
const usual = "retry, hedge, circuitbreaker, ratelimit, timeout"

// situations are what executions meet, by the heading of the page.
var situations = map[string]func(*scene){
	"The server answers 429 with Retry-After: 1 s":                           busyServer,
	"The circuit is open, for 10 s more":                                     func(s *scene) { s.open = true },
	"The limiter has no permit for 1 s, and no room in its queue":            func(s *scene) { s.drained = true },
	"All slots of the adaptive or the concurrency limiter are taken for 1 s": func(s *scene) { s.busy = true },
	"The first request takes 2 s, the others no time":                        slowRequest,
	"Every request takes 2 s":                                                hangingServer,
	"The server fails every request at once":                                 failingServer,
	"The caller's deadline comes after 150 ms, during the call":              callersDeadline,
	"The caller's deadline comes after 150 ms, in the limiter's queue":       deadlineInQueue,
	"The next permit comes in 1 s, in the limiter's queue":                   inQueue,
}

// A scene is one execution and what it meets.
type scene struct {
	t        *testing.T
	began    time.Time
	mu       sync.Mutex
	requests []time.Duration // when they reached the server; with mu held
	serve    func(ctx context.Context, request int) error
	deadline time.Duration // of the caller; 0 for none
	queue    int           // the queue of the bucket

	bucket  *limiter.TokenBucket // of the strategy ratelimit
	drained bool                 // the bucket has no permits, and the next one comes in 1 s
	slots   slotLimiter          // of the strategy adaptive or concurrency, if the order has one
	busy    bool                 // its slot is taken for 1 s
	held    time.Duration        // for how long executions held the slots; with mu held
	open    bool                 // the circuit is open
	breaker *circuitbreaker.Strategy
}

func busyServer(s *scene) {
	s.serve = func(context.Context, int) error {
		if time.Since(s.began) < time.Second {
			return tooManyError(time.Second)
		}
		return nil
	}
}

// A slotLimiter limits how many run at once.
type slotLimiter interface {
	limiter.Limiter
	limiter.StatisticsProvider
}

func slowRequest(s *scene) {
	s.serve = func(ctx context.Context, request int) error {
		if request == 0 {
			return sleep(ctx, 2*time.Second)
		}
		return nil
	}
}

func hangingServer(s *scene) {
	s.serve = func(ctx context.Context, _ int) error { return sleep(ctx, 2*time.Second) }
}

func failingServer(s *scene) {
	s.serve = func(context.Context, int) error { return errServer }
}

func callersDeadline(s *scene) {
	s.deadline = 150 * time.Millisecond
	hangingServer(s)
}

func deadlineInQueue(s *scene) {
	inQueue(s)
	s.deadline = 150 * time.Millisecond
}

func inQueue(s *scene) { s.drained, s.queue = true, 10 }

var errServer = errors.New("500")

// A tooManyError is the error of a 429 with a Retry-After.
type tooManyError time.Duration

func (e tooManyError) Error() string                     { return "429" }
func (e tooManyError) RetryAfter() (time.Duration, bool) { return time.Duration(e), true }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// parts are the strategies of the tables, with the settings that the page says.
var parts = []struct {
	name string
	make func(*scene) pipeline.Strategy
}{
	{"retry", func(*scene) pipeline.Strategy {
		return retry.New(&retry.Options{MaxRetries: 2, Delay: 100 * time.Millisecond})
	}},
	{"hedge", func(*scene) pipeline.Strategy {
		return hedge.New(&hedge.Options{Delay: 200 * time.Millisecond})
	}},
	{"circuitbreaker", func(s *scene) pipeline.Strategy { return s.circuit(false) }},
	{"ratelimit", func(s *scene) pipeline.Strategy {
		return ratelimit.New(s.bucket, nil)
	}},
	{"adaptive", func(s *scene) pipeline.Strategy {
		return adaptive.New(s.limitSlots(weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 1}))), nil)
	}},
	{"Chain(ratelimit, adaptive)", func(s *scene) pipeline.Strategy {
		slots := s.limitSlots(weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 1})))
		return adaptive.New(weir.Must(limiter.Chain(s.bucket, slots)), nil)
	}},
	{"concurrency", func(s *scene) pipeline.Strategy {
		return ratelimit.New(s.limitSlots(oneSlot()), &ratelimit.Options{Name: "Concurrency"})
	}},
	{"Chain(ratelimit, concurrency)", func(s *scene) pipeline.Strategy {
		return ratelimit.New(weir.Must(limiter.Chain(s.bucket, s.limitSlots(oneSlot()))), &ratelimit.Options{Name: "Concurrency"})
	}},
	{"timeout", func(*scene) pipeline.Strategy { return timeout.New(500*time.Millisecond, nil) }},
	{"timeout for the whole", func(*scene) pipeline.Strategy {
		return timeout.New(800*time.Millisecond, &timeout.Options{Name: "Total"})
	}},
	{"fallback", func(*scene) pipeline.Strategy { return fallback.New(fallback.Value("substitute"), nil) }},
	{"circuitbreaker (RetryRejections)", func(s *scene) pipeline.Strategy { return s.circuit(true) }},
	{"retry (budget used up)", func(*scene) pipeline.Strategy {
		return retry.New(&retry.Options{MaxRetries: 2, Delay: 100 * time.Millisecond, Budget: nothingLeft()})
	}},
	{"hedge (budget used up)", func(*scene) pipeline.Strategy {
		return hedge.New(&hedge.Options{Delay: 200 * time.Millisecond, Budget: nothingLeft()})
	}},
}

func nothingLeft() budget.Budget {
	return weir.Must(budget.New(&budget.Options{Ratio: -1, MinPerSecond: -1}))
}

// circuit makes the circuit breaker of the scene.
func (s *scene) circuit(retryRejections bool) pipeline.Strategy {
	s.breaker = circuitbreaker.New(&circuitbreaker.Options{
		ConsecutiveFailures: 2, BreakDuration: 10 * time.Second, RetryRejections: retryRejections,
	})
	if s.open {
		p := weir.Must(pipeline.New("", s.breaker))
		for range 2 {
			require.Error(s.t, p.Execute(s.t.Context(), func(context.Context) error { return errServer }))
		}
	}
	return s.breaker
}

func oneSlot() *limiter.Concurrency {
	return weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
}

// limitSlots makes l the limiter of the slots of the scene.
func (s *scene) limitSlots(l slotLimiter) slotLimiter {
	if s.slots = l; s.busy {
		lease, err := l.TryAcquire(s.t.Context(), 1)
		require.NoError(s.t, err)
		time.AfterFunc(time.Second, lease.Release)
	}
	return l
}

// OnEvent and OnMeasurement add up for how long slots were held.
func (s *scene) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		OnEvent: s.OnEvent,
		OnMeasurement: func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
			s.OnMeasurement(ctx, e)
			return s.OnMeasurement
		},
	}
}

func (s *scene) OnEvent(context.Context, pipeline.Event) {}

func (s *scene) OnMeasurement(_ context.Context, e pipeline.Event) {
	if e.Name == ratelimit.MeasureLease && e.Source.Strategy != "RateLimiter" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held += e.Duration
	}
}

// run runs the execution of an order and returns its cells.
func (s *scene) run(order string) string {
	s.bucket = weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 10, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: s.queue,
	}))
	if s.drained {
		_, err := s.bucket.TryAcquire(s.t.Context(), 10)
		require.NoError(s.t, err)
	}
	p := weir.Must(pipeline.Config{Strategies: s.strategies(order), Listener: s}.Build())
	recordBucket := recorder("permits", s.bucket)
	recordSlots := recorder("slots", s.slots)
	ctx := s.t.Context()
	if s.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.deadline)
		defer cancel()
	}
	s.began = time.Now()
	value, err := pipeline.ExecuteValue(ctx, p, s.call)
	took := time.Since(s.began)
	synctest.Wait()

	var recorded []string
	if strings.Contains(order, "ratelimit") {
		recorded = append(recorded, recordBucket())
	}
	if s.slots != nil {
		recorded = append(recorded, recordSlots())
		s.mu.Lock()
		if s.held > 0 {
			recorded = append(recorded, "held for "+times([]time.Duration{s.held}))
		}
		s.mu.Unlock()
	}
	if s.breaker != nil {
		stats := s.breaker.Statistics()
		circuit := "circuit " + stats.State.String()
		if stats.Throughput > 0 {
			circuit = fmt.Sprintf("circuit %d of %d failed", stats.Failures, stats.Throughput)
		}
		recorded = append(recorded, circuit)
	}
	time.Sleep(time.Hour) // for attempts that go on
	return fmt.Sprintf("%s | %s | %s %s", times(s.requests), strings.Join(recorded, ", "), what(value, err), when(took))
}

// recorder returns a function that writes what l has granted and rejected since.
func recorder(what string, l limiter.StatisticsProvider) func() string {
	if l == nil {
		return nil
	}
	before := l.Statistics()
	return func() string {
		after := l.Statistics()
		text := fmt.Sprintf("%s %d", what, after.SuccessfulLeases-before.SuccessfulLeases)
		if n := after.FailedLeases - before.FailedLeases; n > 0 {
			text += fmt.Sprintf(", rejections %d", n)
		}
		return text
	}
}

// strategies makes the strategies of an order, by their names.
func (s *scene) strategies(order string) []pipeline.Strategy {
	var made []pipeline.Strategy
	for rest := order; rest != ""; {
		longest := -1
		for i, p := range parts {
			after, ok := strings.CutPrefix(rest, p.name)
			if ok && (after == "" || strings.HasPrefix(after, ", ")) && (longest < 0 || len(p.name) > len(parts[longest].name)) {
				longest = i
			}
		}
		require.GreaterOrEqual(s.t, longest, 0, "no strategy is called as %q begins", rest)
		made = append(made, parts[longest].make(s))
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, parts[longest].name), ", ")
	}
	return made
}

// call is the callback: a request to the server.
func (s *scene) call(ctx context.Context) (string, error) {
	s.mu.Lock()
	request := len(s.requests)
	s.requests = append(s.requests, time.Since(s.began))
	s.mu.Unlock()
	if s.serve != nil {
		if err := s.serve(ctx, request); err != nil {
			return "", err
		}
	}
	return "answer", nil
}

// times writes when the requests came.
func times(requests []time.Duration) string {
	if len(requests) == 0 {
		return "none"
	}
	var text []string
	for _, d := range requests {
		text = append(text, strconv.FormatFloat(d.Seconds(), 'g', 3, 64))
	}
	return strings.Join(text, ", ") + " s"
}

func when(took time.Duration) string {
	if took == 0 {
		return "at once"
	}
	return "after " + times([]time.Duration{took})
}

// what names the outcome of an execution, by all that its error matches.
func what(value string, err error) string {
	switch {
	case err == nil && value == "answer":
		return "the answer"
	case err == nil:
		return "the fallback's value"
	}
	var names []string
	is := func(name string, ok bool) {
		if ok {
			names = append(names, "`"+name+"`")
		}
	}
	_, busy := errors.AsType[tooManyError](err)
	_, open := errors.AsType[*circuitbreaker.OpenError](err)
	_, rejected := errors.AsType[*ratelimit.RejectedError](err)
	_, timedOut := errors.AsType[*timeout.Error](err)
	is("429", busy)
	is("500", errors.Is(err, errServer))
	is("*circuitbreaker.OpenError", open)
	is("*ratelimit.RejectedError", rejected)
	is("*timeout.Error", timedOut)
	is("context.DeadlineExceeded", errors.Is(err, context.DeadlineExceeded))
	is("budget.ErrExhausted", errors.Is(err, budget.ErrExhausted))
	text := strings.Join(names, " and ")
	if pipeline.NotCalled(err) && !open && !rejected {
		text += " (not called)"
	}
	return text
}

// runIn returns the cells of an order in a situation.
func runIn(t *testing.T, arrange func(*scene), order string) (cells string) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t}
		arrange(s)
		cells = s.run(order)
	})
	return cells
}

// Each row of the page has what was recorded. The first table has the usual order in each situation, the others have the orders of
// one.
func TestConcepts_WhatTheOrderDoes(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/concepts.md")
	require.NoError(t, err)
	heading, rows := "", map[string]int{}
	for line := range strings.Lines(string(page)) {
		if h, ok := strings.CutPrefix(line, "**"); ok {
			heading, _, _ = strings.Cut(h, "**")
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		in, order := heading, cells[0]
		if situations[order] != nil {
			in, order = cells[0], usual
		}
		if situations[in] == nil || len(cells) != 5 || order == "outermost first" {
			continue
		}
		rows[in]++
		assert.Equal(t, runIn(t, situations[in], order), strings.Join(cells[1:4], " | "), "%s: %s", in, order)
	}
	for in := range situations {
		assert.Greater(t, rows[in], 3, "rows of %s", in)
	}
}
