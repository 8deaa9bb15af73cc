package weirhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/weirtest"
)

type handler = http.HandlerFunc

func around(t testing.TB, o *ThroughOptions, s ...pipeline.Strategy) func(http.Handler) http.Handler {
	p, err := pipeline.New("orders", s...)
	require.NoError(t, err)
	return Through(p, o)
}

// seeing records the error that a strategy in its place sees.
func seeing(err *error) pipeline.Strategy {
	return pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		v, e := next.Run(ctx)
		*err = e
		return v, e
	})
}

// ends runs the rest, and then returns value and err.
func ends(value any, err error) pipeline.Strategy {
	return pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		_, _ = next.Run(ctx)
		return value, err
	})
}

// instead returns value and err without running the rest.
func instead(value any, err error) pipeline.Strategy {
	return pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { return value, err })
}

func TestThrough_StrategiesSeeTheStatus(t *testing.T) {
	var seen error
	for status, failed := range map[int]bool{200: false, 404: false, 499: false, 500: true, 503: true} {
		w := get(around(t, nil, seeing(&seen))(answering(status)))
		assert.Equal(t, status, w.Code)
		assert.Equal(t, failed, seen != nil, status)
	}
	e, ok := errors.AsType[*HandlerError](seen)
	if ok {
		assert.False(t, e.Retryable())
	}

	teapot := &ThroughOptions{Failed: func(status int) bool { return status == 418 }}
	get(around(t, teapot, seeing(&seen))(answering(418)))
	assert.EqualError(t, seen, "weirhttp: the handler answered 418 I'm a teapot")

	assert.Equal(t, "418", seen.(interface{ ErrorType() string }).ErrorType())
}

// A rejection further inside is not a success, and no failure of the handler either.
func TestThrough_StrategiesSeeRejectionsInside(t *testing.T) {
	var seen error
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"busy": {Limit: Of(concurrencyInUse(t))}, "quota": {Limit: Of(no())}, "teapot": {Limit: Of(no()), Status: 420},
	}}))
	everything := &ThroughOptions{Failed: func(int) bool { return true }}
	for policy, status := range map[string]int{"busy": 503, "quota": 429, "teapot": 420} {
		assert.Equal(t, status, get(around(t, everything, seeing(&seen))(l.Handler(served, policy))).Code)
		require.ErrorIs(t, seen, pipeline.ErrRejected)
		retryable, _ := pipeline.Retryable(seen)
		assert.False(t, retryable)
		assert.True(t, pipeline.NotCalled(seen), "so that a circuit stays as it is")
		_, failed := errors.AsType[*HandlerError](seen)
		assert.False(t, failed, "Failed is not asked")
	}
	get(around(t, nil, seeing(&seen))(l.Handler(served, "quota")))
	assert.EqualError(t, seen, "weirhttp: rejected further inside: 429 Too Many Requests")
	get(around(t, nil, seeing(&seen))(l.Handler(served, "teapot")))
	assert.Equal(t, "400", seen.(interface{ ErrorType() string }).ErrorType(), "as every status that is not registered")

	fine := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(no())}, Body: answers(http.StatusOK)}))
	silent := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(no())}, Body: func(http.ResponseWriter, *http.Request, Rejection) {}}))
	for _, l := range []*Limits{fine, silent} {
		assert.Equal(t, 200, get(around(t, nil, seeing(&seen))(l.Handler(served))).Code)
		assert.NoError(t, seen, "the answer says that all is well")
	}
}

func concurrencyInUse(t testing.TB) limiter.Limiter {
	l := concurrency(t, 1, 0)
	_, err := l.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	return l
}

func answering(status int) http.Handler {
	return handler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

func TestThrough_Answers(t *testing.T) {
	spent := bucket(t, 1)
	_, _ = spent.TryAcquire(t.Context(), 1)
	closed := weir.Must(pipeline.New("closed"))
	_ = closed.Close()
	page := handler(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "from the cache") })
	for _, c := range []struct {
		name     string
		strategy pipeline.Strategy
		status   int
		body     string
		after    string
	}{
		{"nothing", seeing(new(error)), 200, "", ""},
		{"a quota", ratelimit.New(spent, nil), 429, "Too Many Requests\n", "3600"},
		{"capacity", ratelimit.New(concurrencyInUse(t), nil), 503, "Service Unavailable\n", ""},
		{"an open circuit", instead(nil, pipeline.ErrRejected), 503, "Service Unavailable\n", ""},
		{"closed", pipeline.Embed(closed), 503, "Service Unavailable\n", ""},
		{"another error", instead(nil, errStore), 500, "Internal Server Error\n", ""},
		{"a page", instead(page, nil), 200, "from the cache", ""},
		{"no answer", instead(nil, nil), 503, "Service Unavailable\n", ""},
		{"a wrong type", instead(7, nil), 500, "Internal Server Error\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := get(around(t, nil, c.strategy)(served))
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, c.body, w.Body.String())
			assert.Equal(t, c.after, w.Result().Header.Get("Retry-After"))
		})
	}
	o := &ThroughOptions{
		Status:     func(error) int { return 418 },
		OnRejected: func(_ http.ResponseWriter, _ *http.Request, r Rejection) { assert.Equal(t, "orders", r.Policy) },
		Body:       ProblemJSON,
	}
	assert.Equal(t, 418, get(around(t, o, instead(nil, errStore))(served)).Code)
	assert.Panics(t, func() { Through(closed, nil)(nil) })
}

// A timeout after the response has begun does not change the response.
func TestThrough_TimeoutDoesNotMixItsAnswerIn(t *testing.T) {
	begun := handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half a ")
		<-r.Context().Done()
		_, _ = io.WriteString(w, "page")
	})
	w := get(around(t, nil, timeout.New(time.Millisecond, nil))(begun))
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "half a page", w.Body.String())

	w = get(around(t, nil, ends(nil, errStore))(saying("ours")))
	assert.Equal(t, "ours", w.Body.String())
}

func saying(body string) http.Handler {
	return handler(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
}

func TestThrough_NoRetryAfterTheAnswerHasBegun(t *testing.T) {
	for _, c := range []struct {
		name   string
		handle func(any, error) bool
		begins bool
		body   string
		want   int
		status int
	}{
		{"it has answered", nil, true, "", 1, 500},
		{"it had the body", nil, false, "body", 1, 503},
		{"it has done nothing", nil, false, "", 3, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			attempts := 0
			h := handler(func(w http.ResponseWriter, r *http.Request) {
				attempts++
				assert.Equal(t, "outer", w.Header().Get("X-Of"))
				assert.Empty(t, w.Header().Get("X-Attempt"))
				w.Header().Set("X-Attempt", "1")
				if c.begins {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				<-r.Context().Done()
			})
			s := []pipeline.Strategy{retry.New(&retry.Options{MaxRetries: 2, Delay: -1, Handle: c.handle}), timeout.New(time.Millisecond, nil)}
			w := httptest.NewRecorder()
			w.Header().Set("X-Of", "outer")
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			around(t, nil, s...)(h).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", body))
			assert.Equal(t, c.want, attempts)
			assert.Equal(t, c.status, w.Code, "of the last attempt that was made")
		})
	}
}

// A strategy that runs the handler on other goroutines, more than once, and without waiting for it, has no effect on
// the client.
func TestThrough_HandlerNeverRunsTwiceAtOnce(t *testing.T) {
	hasty := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		started := make(chan struct{})
		ctx2 := context.WithValue(ctx, callKeyForTest{}, started)
		go func() { _, _ = next.Run(ctx2) }()
		<-started
		_, err := next.Run(ctx)
		assert.ErrorIs(t, err, errRunAgain)
		return nil, errStore
	})
	returned := false
	w := get(around(t, nil, hasty)(handler(func(w http.ResponseWriter, r *http.Request) {
		close(r.Context().Value(callKeyForTest{}).(chan struct{}))
		time.Sleep(5 * time.Millisecond) // so that a Through that does not wait is seen
		_, _ = io.WriteString(w, "late")
		returned = true
	})))
	assert.True(t, returned)
	assert.Equal(t, "late", w.Body.String())
}

type callKeyForTest struct{}

func TestByPipeline_WithOtherPolicies(t *testing.T) {
	before, after := yes(), no()
	var seen error
	p := weir.Must(pipeline.New("p", seeing(&seen)))
	rejecting := weir.Must(pipeline.New("r", instead(nil, pipeline.ErrRejected)))
	slow := weir.Must(pipeline.New("s", timeout.New(time.Millisecond, nil)))
	page := weir.Must(pipeline.New("f", instead(saying("page"), nil)))
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"before": {Limit: Of(before)}, "after": {Limit: Of(after)},
		"p": Policy{Limit: ByPipeline(p)}, "rejecting": {Limit: ByPipeline(rejecting), Status: 418}, "slow": Policy{Limit: ByPipeline(slow)}, "page": Policy{Limit: ByPipeline(page)},
	}}))
	assert.Equal(t, 429, get(l.Handler(served, "before", "p", "after")).Code)
	assert.ErrorIs(t, seen, pipeline.ErrRejected)
	before.check(t, 1, 0, 1)
	assert.Equal(t, 418, get(l.Handler(served, "before", "rejecting")).Code)
	before.check(t, 2, 0, 2)
	assert.Equal(t, 500, get(l.Handler(answering(500), "before", "p")).Code)
	assert.Error(t, seen)
	before.check(t, 3, 1, 2)
	waits := handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	assert.Equal(t, 503, get(l.Handler(waits, "before", "slow")).Code)
	before.check(t, 4, 2, 2) // it ran, so it cost
	assert.Equal(t, "page", get(l.Handler(waits, "page")).Body.String())

	attempts := 0
	again := weir.Must(pipeline.New("again", retry.New(&retry.Options{MaxRetries: 2, Delay: -1}), timeout.New(time.Millisecond, nil)))
	busy := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"again": {Limit: ByPipeline(again)}, "one": {Limit: Of(concurrency(t, 1, 0))}}}))
	get(busy.Handler(handler(func(_ http.ResponseWriter, r *http.Request) { attempts++; <-r.Context().Done() }), "again", "one"))
	assert.Equal(t, 3, attempts, "an attempt gives back what the one before was granted")
	_, err := NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: ByPipeline(p), Shadow: true}}})
	assert.ErrorIs(t, err, weir.ErrInvalidOptions)
}

// An attempt after the end of the request gets neither the ResponseWriter nor permits, which would never be released.
func TestThrough_NoAttemptAfterTheAnswer(t *testing.T) {
	var late func() error
	keep := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		late = func() error { _, err := next.Run(ctx); return err }
		return next.Run(ctx)
	})
	p := weir.Must(pipeline.New("p", keep))
	slots := concurrency(t, 1, 0)
	ran := 0
	count := handler(func(http.ResponseWriter, *http.Request) { ran++ })
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": Policy{Limit: ByPipeline(p)}, "slots": {Limit: Of(slots)}}}))
	for _, h := range []http.Handler{Through(p, nil)(count), l.Handler(count, "p", "slots")} {
		ran = 0
		get(h)
		require.ErrorIs(t, late(), errRunAgain)
		assert.Equal(t, 1, ran)
	}
	assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
}

// A circuit breaker further out sees a handler that ran out of time as a failure. A limiter that rejects says nothing
// about the handler.
func TestThrough_TimeoutIsAFailureOfTheHandler(t *testing.T) {
	waits := handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	timedOut := weir.Must(pipeline.New("t", timeout.New(time.Millisecond, nil)))
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"p": {Limit: Of(yes()), Timeout: time.Millisecond}, "t": Policy{Limit: ByPipeline(timedOut)},
		"rejecting": Policy{Limit: ByPipeline(weir.Must(pipeline.New("r", instead(nil, pipeline.ErrRejected))))},
	}}))
	for name, c := range map[string]struct {
		inner  http.Handler
		failed bool
	}{
		"a policy's Timeout":      {l.Handler(waits, "p"), true},
		"a timeout in a pipeline": {Through(timedOut, nil)(waits), true},
		"one that is a policy":    {l.Handler(waits, "t"), true},
		"a rejection":             {Through(weir.Must(pipeline.New("r", instead(nil, pipeline.ErrRejected))), nil)(waits), false},
		"one that is a policy's":  {l.Handler(waits, "rejecting"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var seen error
			w := get(around(t, nil, seeing(&seen))(c.inner))
			assert.Equal(t, 503, w.Code)
			if c.failed {
				assert.EqualError(t, seen, "weirhttp: the handler answered 503 Service Unavailable")
			} else {
				assert.EqualError(t, seen, "weirhttp: rejected further inside: 503 Service Unavailable")
			}
		})
	}
}

// An answer in place of the handler's has none of the headers that the handler prepared: a cache would keep a 503 for
// as long as the page.
func TestThrough_AnswerHasNotTheHandlersHeader(t *testing.T) {
	gives := handler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=3600")
		w.Header().Add("X-Of", "handler")
		<-r.Context().Done()
	})
	p := weir.Must(pipeline.New("t", timeout.New(time.Millisecond, nil)))
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		"p": {Limit: Of(bucket(t, 10)), Timeout: time.Millisecond}, "t": Policy{Limit: ByPipeline(p)}, "bucket": {Limit: Of(bucket(t, 10))},
	}}))
	for name, h := range map[string]http.Handler{
		"a policy's Timeout": l.Handler(gives, "p"), "Through": Through(p, nil)(gives), "a pipeline": l.Handler(gives, "bucket", "t"),
	} {
		t.Run(name, func(t *testing.T) {
			w := get(handler(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Of", "outer")
				h.ServeHTTP(w, r)
			}))
			assert.Equal(t, 503, w.Code)
			assert.Empty(t, w.Result().Header.Get("Cache-Control"))
			assert.Equal(t, []string{"outer"}, w.Result().Header["X-Of"])
		})
	}
}

// What an attempt has used is spent, also if a later attempt is shed.
func TestThrough_RequestThatIsShedAfterAnAttemptIsSpent(t *testing.T) {
	waits := handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	again := func() *pipeline.Pipeline {
		return weir.Must(pipeline.New("again", retry.New(&retry.Options{MaxRetries: 1, Delay: -1}), timeout.New(time.Millisecond, nil)))
	}
	once := func() scripted { return follows(weirtest.Grant(), weirtest.Reject(0, "")) }
	before, between := yes(), yes()
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"before": {Limit: Of(before)}, "again": {Limit: ByPipeline(again())}, "between": {Limit: Of(between)}, "once": {Limit: Of(once())},
	}}))
	assert.Equal(t, 503, get(l.Handler(waits, "before", "again", "between", "once")).Code)
	before.check(t, 1, 1, 0)
	between.check(t, 2, 1, 1)

	assert.Equal(t, 503, get(l.Handler(Through(again(), nil)(around(t, nil, ratelimit.New(once(), nil))(waits)), "before")).Code)
	before.check(t, 2, 2, 0)
}

// A handler that answers by itself when a pipeline further inside sheds its request keeps its slot until it has returned, and has
// used its tokens.
func TestThrough_ShedRequestThatTheHandlerAnswers(t *testing.T) {
	slots, tokens := concurrency(t, 1, 0), bucket(t, 10)
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{"slots": {Limit: Of(slots)}, "tokens": {Limit: Of(tokens)}}}))
	shed := around(t, nil, instead(nil, pipeline.ErrRejected))(served)
	w := get(l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
		shed.ServeHTTP(httptest.NewRecorder(), r)
		assert.Zero(t, slots.Statistics().AvailablePermits)
		_, _ = io.WriteString(w, "by a slow path")
	}), "slots", "tokens"))
	assert.Equal(t, "by a slow path", w.Body.String())
	assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
	assert.EqualValues(t, 9, tokens.Statistics().AvailablePermits)
	assert.Equal(t, `"tokens";r=9;t=3600`, w.Header().Get("RateLimit"))
}

// Policy.Status is for rejections: a timeout is none, and a closed pipeline is one.
func TestByPipeline_Status(t *testing.T) {
	closed := weir.Must(pipeline.New("closed"))
	require.NoError(t, closed.Close())
	waits := handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for status, p := range map[int]*pipeline.Pipeline{
		503: weir.Must(pipeline.New("t", timeout.New(time.Millisecond, nil))),
		500: weir.Must(pipeline.New("e", instead(nil, errStore))),
		429: closed,
	} {
		l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: ByPipeline(p), Status: 429}}))
		assert.Equal(t, status, get(l.Handler(waits)).Code, p.Name())
	}
}

// A client has not gone because a strategy has cancelled the wait of its request in a queue.
func TestThrough_StrategyThatCancelsIsNoClientThatHasGone(t *testing.T) {
	cancels := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(time.Second, cancel).Stop()
		return next.Run(ctx)
	})
	for name, wrap := range map[string]func(busy limiter.Limiter) http.Handler{
		"a policy": func(busy limiter.Limiter) http.Handler {
			p := weir.Must(pipeline.New("p", cancels))
			l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: ByPipeline(p)}, "busy": {Limit: Of(busy)}}}))
			return l.Handler(served, "p", "busy")
		},
		"limits inside": func(busy limiter.Limiter) http.Handler {
			return around(t, nil, cancels)(weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(busy)}})).Handler(served))
		},
		"a pipeline inside": func(busy limiter.Limiter) http.Handler {
			return around(t, nil, cancels)(around(t, nil, ratelimit.New(busy, nil))(served))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				busy := concurrency(t, 1, 1)
				require.True(t, weir.Must(busy.TryAcquire(t.Context(), 1)).Acquired())
				h := wrap(busy)
				w := get(h)
				assert.Equal(t, 503, w.Code)
				assert.Equal(t, "Service Unavailable\n", w.Body.String())

				gone, cancel := context.WithCancel(t.Context())
				cancel()
				w = httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(gone))
				assert.Equal(t, StatusClientClosedRequest, w.Code)
			})
		})
	}
}

// A handler that ran out of time has not answered, whatever a strategy makes of that.
func TestThrough_NoEmptyAnswerForAHandlerThatRanOutOfTime(t *testing.T) {
	waits := handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	assert.Equal(t, 503, get(around(t, nil, ends(nil, nil), timeout.New(time.Millisecond, nil))(waits)).Code)
}

// A request whose key is ambiguous has no quota to tell about.
func TestLimits_AmbiguousKeyHasNoQuota(t *testing.T) {
	keyed := weir.Must(PerKey(limiter.FactoryFor[string](limiter.PerMinute(10, 10)), nil))
	defer keyed.Close()
	key := func(*http.Request) string { return AmbiguousKey }
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: ByKey(keyed, key), Quota: 10}, Headers: Draft11}))
	w := get(l.Handler(served))
	assert.Equal(t, 400, w.Code)
	assert.Empty(t, w.Header().Values("RateLimit"))
}

// An attempt that cannot be made says nothing about the handler.
func TestThrough_BreakerDoesNotCountAnAttemptThatIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breaker := circuitbreaker.New(&circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1})
		w := get(around(t, nil, hedge.New(&hedge.Options{Delay: time.Second}), breaker)(handler(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Minute)
			_, _ = io.WriteString(w, "slow, but well")
		})))
		assert.Equal(t, "slow, but well", w.Body.String())
		assert.Equal(t, circuitbreaker.Closed, breaker.State())
	})
}

// A retry does not wait for an attempt that cannot be made.
func TestThrough_NoWaitForAnAttemptThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		began, w := time.Now(), httptest.NewRecorder()
		around(t, nil, retry.New(&retry.Options{Delay: time.Hour}), timeout.New(time.Second, nil))(waits).
			ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body")))
		assert.Equal(t, 503, w.Code)
		assert.Equal(t, time.Second, time.Since(began))
	})
}
