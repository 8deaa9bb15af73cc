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
// server, a bucket and a circuit recorded, and what the execution returned. The page has the words that this test writes.

const ordersPage = root + "/docs/concepts.md"

// usual is the order that the page recommends.
const usual = "retry, hedge, circuitbreaker, ratelimit, timeout"

// A situation is a heading of the page: what usual does in it, and what other orders do.
type situation struct {
	heading string
	arrange func(*scene)
	usually string // what the execution of the usual order means
	rows    []row
}

// A row is an order, and what its execution means.
type row struct{ order, meaning string }

var situations = []situation{
	{"The server answers 429 with Retry-After: 1 s", busyServer, "a refusal starts no hedge, and the retry waits", []row{
		{"retry", "waits for Retry-After, not for its 100 ms"},
		{"hedge", "a refusal starts no hedge"},
		{"retry, hedge", "a refusal starts no hedge, and the retry waits"},
		{"hedge, retry", "the hedge takes the wait for slowness, and calls a server that has just refused"},
		{"retry, circuitbreaker", "each attempt counts"},
		{"circuitbreaker, retry", "only the last outcome counts"},
		{"retry, ratelimit", "a permit for each attempt"},
		{"ratelimit, retry", "one permit for all attempts and the waits between them"},
		{"retry (budget used up)", "no retry without the budget"},
		{"timeout for the whole, retry", "a wait that would outlast the timeout is not begun"},
		{"fallback, hedge", "nothing waits: the failure is replaced"},
	}},
	{"The circuit is open, for 10 s more", openCircuit, "fails fast, and takes no permit", []row{
		{"retry, circuitbreaker", "an open circuit is not retried"},
		{"retry, circuitbreaker (RetryRejections)", "the retry waits for the break, and its attempt is the probe"},
		{"timeout for the whole, retry, circuitbreaker (RetryRejections)", "but not if the break outlasts the timeout"},
		{"hedge, circuitbreaker", "a rejection starts no hedge"},
		{"circuitbreaker, ratelimit", "an open circuit takes no permit"},
		{"ratelimit, circuitbreaker", "the rejection has spent a permit"},
		{"circuitbreaker, concurrency", "an open circuit takes no slot"},
		{"concurrency, circuitbreaker", "the rejection takes a slot, and gives it back at once"},
		{"adaptive, circuitbreaker", "the rejection takes a slot, and the limiter learns nothing from it"},
		{"fallback, circuitbreaker", "the rejection is replaced"},
		{"fallback, retry, circuitbreaker", "the rejection is replaced, and not retried"},
	}},
	{"The limiter has no permit for 1 s, and no room in its queue", noPermit, "the retry waits for the permit", []row{
		{"ratelimit", "a rejection, with its RetryAfter"},
		{"retry, ratelimit", "the retry waits for the RetryAfter"},
		{"ratelimit, retry", "the rejection goes straight to the caller"},
		{"timeout for the whole, retry, ratelimit", "a wait that would outlast the timeout is not begun"},
		{"hedge, ratelimit", "one rejection, not two: it starts no hedge"},
		{"circuitbreaker, ratelimit", "a rejection does not count"},
		{"fallback, ratelimit", "the rejection is replaced"},
	}},
	{"All slots of the adaptive or the concurrency limiter are taken for 1 s", fullSlots, "", []row{
		{"adaptive, ratelimit", "what is shed takes no permit"},
		{"ratelimit, adaptive", "what is shed has spent a permit"},
		{"Chain(ratelimit, adaptive)", "what is shed takes no permit: a chain gives back what it took"},
		{"retry, adaptive", "no RetryAfter is known, so the retry waits for its 100 ms"},
		{"hedge, adaptive", "a rejection starts no hedge"},
		{"circuitbreaker, adaptive", "a rejection does not count"},
		{"fallback, adaptive", "the rejection is replaced"},
		{"concurrency, ratelimit", "the rejection takes no permit"},
		{"ratelimit, concurrency", "the rejection has spent a permit"},
		{"Chain(ratelimit, concurrency)", "the rejection takes no permit: a chain gives back what it took"},
		{"retry, concurrency", "no RetryAfter is known, so the retry waits for its 100 ms"},
		{"hedge, concurrency", "a rejection starts no hedge"},
		{"circuitbreaker, concurrency", "a rejection does not count"},
		{"fallback, concurrency", "the rejection is replaced"},
	}},
	{"The first request takes 2 s, the others no time", slowRequest, "the hedge wins, and the loser does not count", []row{
		{"hedge", "a second attempt beside the slow one"},
		{"hedge (budget used up)", "no hedge without the budget"},
		{"hedge, ratelimit", "a permit for each attempt"},
		{"ratelimit, hedge", "one permit for both attempts"},
		{"hedge, circuitbreaker", "the loser is cancelled, and does not count"},
		{"retry, timeout", "each attempt has 500 ms, and one that is timed out is retried"},
		{"timeout, retry", "all attempts together have 500 ms"},
		{"circuitbreaker, timeout", "a call that hangs is a failure"},
		{"timeout, circuitbreaker", "also if the timeout is outside, as it ends the call"},
		{"circuitbreaker, hedge", "one outcome for both attempts"},
		{"hedge, concurrency", "a slot for each attempt, so the hedge that finds none is rejected"},
		{"concurrency, hedge", "one slot for both attempts: the server has two requests at once"},
		{"hedge, adaptive", "a slot for each attempt, so the hedge that finds none is rejected"},
		{"adaptive, hedge", "one slot for both attempts, and the limiter learns from the time of the hedge"},
	}},
	{"Every request takes 2 s", hangingServer, "each attempt has 500 ms, and the circuit counts it", []row{
		{"retry, timeout", "500 ms for each attempt"},
		{"timeout, retry", "500 ms for all attempts together"},
		{"timeout for the whole, retry, timeout", "500 ms for each attempt, and 800 ms for all"},
		{"hedge, timeout", "500 ms for each attempt"},
		{"timeout, hedge", "500 ms for both attempts together"},
		{"retry, circuitbreaker, timeout", "each attempt counts, and an open circuit is not retried"},
		{"fallback, timeout", "the timeout is replaced"},
		{"timeout, fallback", "further inside, the end of the time ends the execution, which is not replaced"},
		{"concurrency, timeout", "the slot is free when the time is over and the call has ended"},
		{"timeout, concurrency", "also if the timeout is outside, as it ends the call"},
		{"adaptive, timeout", "a failure, from which the limiter learns nothing"},
		{"timeout, adaptive", "the end of the call, from which the limiter learns nothing"},
		{"hedge, circuitbreaker, timeout", "each attempt counts"},
	}},
	{"The server fails every request at once", failingServer, "each attempt counts until the circuit opens", []row{
		{"retry", "three attempts"},
		{"retry (budget used up)", "no retry without the budget"},
		{"retry, retry", "three attempts of three: one retry is enough"},
		{"hedge", "a failure starts the hedge at once"},
		{"hedge (budget used up)", "no hedge without the budget"},
		{"retry, hedge", "each of three attempts is hedged: share a Budget"},
		{"retry, circuitbreaker", "each attempt counts, and an open circuit is not retried"},
		{"circuitbreaker, retry", "only the last outcome counts, so the circuit opens late"},
		{"retry, ratelimit", "a permit for each attempt"},
		{"ratelimit, retry", "one permit for all attempts"},
		{"retry, concurrency", "a slot for each attempt, and none during the waits"},
		{"concurrency, retry", "one slot for all attempts and the waits between them"},
		{"retry, adaptive", "a slot for each attempt, and none during the waits"},
		{"adaptive, retry", "one slot for all attempts: the waits would count as work"},
		{"hedge, circuitbreaker", "each attempt counts"},
		{"circuitbreaker, hedge", "one outcome for both attempts"},
		{"fallback, retry", "what the retry cannot mend is replaced"},
		{"retry, fallback", "the retry sees a success"},
		{"fallback, hedge", "what the hedge cannot mend is replaced"},
		{"hedge, fallback", "the hedge sees a success"},
		{"fallback, circuitbreaker", "the failure is replaced, and counts"},
		{"circuitbreaker, fallback", "the circuit sees a success"},
		{"ratelimit, fallback", "the permit is spent"},
	}},
	{"The caller's deadline comes after 150 ms, during the call", callersDeadline, "the call had time and did not answer", []row{
		{"retry", "the end of the execution is not retried"},
		{"hedge", "no attempt starts after the end"},
		{"circuitbreaker", "the call had time and did not answer"},
		{"fallback", "the end of the execution is not replaced"},
	}},
	{"The caller's deadline comes after 150 ms, in the limiter's queue", deadlineInQueue, "nothing was called, and nothing counts", []row{
		{"ratelimit", "a waiter that leaves costs nothing"},
		{"circuitbreaker, ratelimit", "nothing was called, so nothing counts"},
		{"timeout, ratelimit", "the caller's deadline comes before the timeout"},
		{"fallback, ratelimit", "the end of the execution is not replaced"},
	}},
	{"The next permit comes in 1 s, in the limiter's queue", inQueue, "the time starts when the permit is granted; the hedge queues too", []row{
		{"timeout, ratelimit", "the time in the queue counts: the way to bound how long a call queues"},
		{"ratelimit, timeout", "the time starts when the permit is granted"},
		{"circuitbreaker, timeout, ratelimit", "a timeout in the queue does not count: nothing was called"},
		{"retry, timeout, ratelimit", "the second attempt queues again"},
		{"hedge, ratelimit", "a queue is slow, too: both attempts wait in it"},
	}},
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

func openCircuit(s *scene) { s.open = true }
func noPermit(s *scene)    { s.drained = true }
func fullSlots(s *scene)   { s.busy = true }

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

// parts are the strategies of the tables. The page has the same words.
var parts = []struct {
	name, settings string
	make           func(*scene) pipeline.Strategy
}{
	{"retry", "2 retries, after 100 ms each", func(*scene) pipeline.Strategy {
		return retry.New(&retry.Options{MaxRetries: 2, Delay: 100 * time.Millisecond})
	}},
	{"hedge", "1 hedge, after 200 ms", func(*scene) pipeline.Strategy {
		return hedge.New(&hedge.Options{Delay: 200 * time.Millisecond})
	}},
	{"circuitbreaker", "opens after 2 failures in a row, for 10 s", func(s *scene) pipeline.Strategy { return s.circuit(false) }},
	{"ratelimit", "a token bucket of 10 permits, one more every second, without a queue", func(s *scene) pipeline.Strategy {
		return ratelimit.New(s.bucket, nil)
	}},
	{"adaptive", "an adaptive limiter of 1 slot at first, without a queue", func(s *scene) pipeline.Strategy {
		return adaptive.New(s.limitSlots(weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 1}))), nil)
	}},
	{"Chain(ratelimit, adaptive)", "`adaptive.New(limiter.Chain(bucket, adaptiveLimiter), nil)`", func(s *scene) pipeline.Strategy {
		slots := s.limitSlots(weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{InitialLimit: 1})))
		return adaptive.New(weir.Must(limiter.Chain(s.bucket, slots)), nil)
	}},
	{"concurrency", "`ratelimit.New` with a concurrency limiter of 1 slot, without a queue", func(s *scene) pipeline.Strategy {
		return ratelimit.New(s.limitSlots(oneSlot()), &ratelimit.Options{Name: "Concurrency"})
	}},
	{"Chain(ratelimit, concurrency)", "`ratelimit.New(limiter.Chain(bucket, concurrency), nil)`", func(s *scene) pipeline.Strategy {
		return ratelimit.New(weir.Must(limiter.Chain(s.bucket, s.limitSlots(oneSlot()))), &ratelimit.Options{Name: "Concurrency"})
	}},
	{"timeout", "500 ms", func(*scene) pipeline.Strategy { return timeout.New(500*time.Millisecond, nil) }},
	{"timeout for the whole", "800 ms", func(*scene) pipeline.Strategy {
		return timeout.New(800*time.Millisecond, &timeout.Options{Name: "Total"})
	}},
	{"fallback", "a value in place of a failure", func(*scene) pipeline.Strategy { return fallback.New(fallback.Value("substitute"), nil) }},
	{"circuitbreaker (RetryRejections)", "the same, with RetryRejections", func(s *scene) pipeline.Strategy { return s.circuit(true) }},
	{"retry (budget used up)", "the same, with a Budget that has nothing left", func(*scene) pipeline.Strategy {
		return retry.New(&retry.Options{MaxRetries: 2, Delay: 100 * time.Millisecond, Budget: nothingLeft()})
	}},
	{"hedge (budget used up)", "the same, with a Budget that has nothing left", func(*scene) pipeline.Strategy {
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

const columns = "requests at | recorded | the caller gets | that means |\n|---|---|---|---|---|\n"

// cells returns the cells of an order in x.
func (x *situation) cells(t *testing.T, order string) (cells string) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t}
		x.arrange(s)
		cells = s.run(order)
	})
	return cells
}

// The page has the words of the rows and what they recorded. If a change is meant, the tables of the failure belong there.
func TestConcepts_WhatTheOrderDoes(t *testing.T) {
	page, err := os.ReadFile(ordersPage)
	require.NoError(t, err)
	glance, settings := "| what happens | "+columns, "| strategy | in the tables |\n|---|---|\n"
	for _, p := range parts {
		settings += "| " + p.name + " | " + p.settings + " |\n"
	}
	assertHas(t, string(page), settings)
	for _, x := range situations {
		if x.usually != "" {
			glance += "| " + x.heading + " | " + x.cells(t, usual) + " | " + x.usually + " |\n"
		}
		var table strings.Builder
		table.WriteString("**" + x.heading + "**\n\n| outermost first | " + columns)
		for _, r := range x.rows {
			table.WriteString("| " + r.order + " | " + x.cells(t, r.order) + " | " + r.meaning + " |\n")
		}
		assertHas(t, string(page), table.String())
	}
	assertHas(t, string(page), glance)
}

func assertHas(t *testing.T, page, table string) {
	t.Helper()
	if !strings.Contains(page, "\n"+table+"\n") {
		t.Errorf("%s does not have:\n%s", ordersPage, table)
	}
}
