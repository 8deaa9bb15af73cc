package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/weirtest"
)

// checkAnswer asks for a check as JSON.
func (s *scene) checkAnswer(parameters string) (c checkPage, status int) {
	s.t.Helper()
	w := s.get("/check.json?" + parameters)
	require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &c), w.Body.String())
	return c, w.Code
}

func TestCheck_TakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		for range 10 {
			c, status := s.checkAnswer("limiter=bucket")
			assert.Equal(t, http.StatusOK, status)
			assert.True(t, c.Granted)
			assert.Equal(t, []CheckResult{{Limiter: "bucket", Matched: true, Granted: true, Remaining: new(int64(2))}}, c.Results)
		}
		d := s.view("/limiters.json?q=bucket")
		assert.EqualValues(t, 3, *d.Limiters[0].Available)
		assert.EqualValues(t, 0, *d.Limiters[0].Granted)

		s.execute(t.Context(), "orders", 3, nil)
		c, _ := s.checkAnswer("limiter=bucket&permits=2")
		assert.False(t, c.Granted)
		assert.Equal(t, "bucket", c.By)
		assert.Equal(t, limiter.ReasonNoPermit, c.Results[0].Reason)
		assert.Equal(t, 2*time.Hour, c.Results[0].RetryAfter)
		d = s.view("/limiters.json?q=bucket")
		assert.EqualValues(t, 0, *d.Limiters[0].Rejected, "the check does not count")
		assert.Contains(t, s.html("/check?limiter=bucket"), "It would be rejected by bucket.")
		assert.Contains(t, s.get("/check?limiter=bucket").Body.String(), "It would be rejected by bucket.\n")
	})
}

func TestCheck_ByKey(t *testing.T) {
	s := newScene(t, nil)
	s.execute(withClient(t.Context(), "alice"), "api", 1, nil)
	c, _ := s.checkAnswer("pipeline=api&key=alice")
	assert.False(t, c.Granted)
	assert.Equal(t, s.dashboard.options.KeyHash.Hash("alice"), c.Results[0].Key, "the hash of the page with the keys")
	c, _ = s.checkAnswer("pipeline=api&key=bob")
	assert.True(t, c.Granted)
	assert.Equal(t, 1, *s.view("/limiters.json?q=per-client").Limiters[0].Partitions, "a check makes no partition")
	c, _ = s.checkAnswer("pipeline=api")
	assert.False(t, c.Granted, "what was not asked can reject")
	assert.Equal(t, "per-client", c.Unasked)
	assert.Contains(t, s.get("/check?limiter=per-client").Body.String(), "It is not known: per-client was not asked.")
	assert.Contains(t, s.html("/check?limiter=per-client"), "It is not known: per-client was not asked.")
	assert.Equal(t, []CheckResult{{Limiter: "per-client", Policy: "api", Unasked: true, Reason: "it has a limit for each key: give the key"}}, c.Results)
}

// A strategy in shadow mode lets the execution go on, so no limiter of its pipeline rejects it.
func TestCheck_Shadow(t *testing.T) {
	shadow := &ratelimit.Options{Shadow: true}
	s := newScene(t, func(s *scene, _ *Options) {
		hour := limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}
		client := func(context.Context) string { return "alice" }
		s.define("trial", func(b *registry.Builder) error {
			trial := registry.Partitioned(b, "trial by key", client, hour, nil)
			b.Add(
				ratelimit.New(b.FixedWindow("trial", hour), shadow),
				ratelimit.NewPartitioned(trial, func(ctx context.Context) context.Context { return ctx }, shadow),
			)
			return nil
		})
		s.define("both", func(b *registry.Builder) error {
			both := b.FixedWindow("both", hour)
			b.Add(ratelimit.New(both, shadow), ratelimit.New(both, nil))
			return nil
		})
	})
	s.execute(t.Context(), "trial", 2, nil)
	s.execute(t.Context(), "both", 1, nil)
	c, _ := s.checkAnswer("pipeline=trial&key=alice")
	assert.True(t, c.Granted, c.Results)
	require.Len(t, c.Results, 2)
	assert.Contains(t, c.Results[0].Warning, "shadow mode")
	c, _ = s.checkAnswer("pipeline=trial")
	assert.True(t, c.Granted, "whatever the key is")
	c, _ = s.checkAnswer("limiter=trial")
	assert.False(t, c.Granted, "the limiter itself rejects")
	c, _ = s.checkAnswer("pipeline=both")
	assert.Equal(t, "both", c.By, "another strategy enforces it")
}

// A circuit whose break is over lets the next call through, also if none has come.
func TestCircuits_BreakIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.execute(t.Context(), "orders", 2, errBoom)
		s.get("/overview.json")
		time.Sleep(59 * time.Minute)
		assert.Contains(t, s.get("/overview.txt").Body.String(), "is open: boom")
		time.Sleep(time.Minute)
		d := s.view("/overview.json")
		assert.Equal(t, "half_open", d.Circuits[0].State)
		assert.Contains(t, s.get("/overview.txt").Body.String(), "is half open: the next calls decide whether it closes: boom")
		assert.Equal(t, 1, d.Summary.Open, "it is not closed")
		c, _ := s.checkAnswer("pipeline=orders")
		assert.True(t, c.Granted)

		p, err := s.registry.Get("orders")
		require.NoError(t, err)
		_ = p.Execute(t.Context(), func(context.Context) error {
			c, _ := s.checkAnswer("pipeline=orders")
			assert.False(t, c.Granted)
			assert.Equal(t, "the circuit is half open, and is tried by other calls", c.Results[1].Reason)
			assert.Equal(t, time.Hour, c.Results[1].RetryAfter)
			return nil
		})
	})
}

// With a queue, TryAcquire is rejected where Acquire would wait.
func TestCheckPipeline(t *testing.T) {
	slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 5}))
	window := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}))
	control := new(circuitbreaker.Control)
	strategies := []pipeline.Strategy{
		ratelimit.New(slots, &ratelimit.Options{Name: "slots"}),
		circuitbreaker.New(&circuitbreaker.Options{Control: control}),
		ratelimit.New(window, &ratelimit.Options{Name: "shadow", Shadow: true}),
		ratelimit.New(weirtest.NewLimiter(), &ratelimit.Options{Name: "script"}),
		ratelimit.New(weirtest.NewLimiter(), &ratelimit.Options{Name: "shadow of script", Shadow: true}),
	}
	inner := weir.Must(pipeline.New("inner", strategies...))
	outer := weir.Must(pipeline.New("outer", pipeline.Embed(inner), ratelimit.New(window, nil), pipeline.Embed(inner)))
	want := []CheckResult{
		{Policy: "inner", Limiter: "inner/slots", Matched: true, Granted: true},
		{Policy: "inner", Limiter: "circuit inner/CircuitBreaker", Matched: true, Granted: true},
		{Policy: "inner", Limiter: "inner/shadow", Matched: true, Granted: true},
		{Policy: "inner", Limiter: "inner/script", Unasked: true, Reason: "it cannot be asked without taking a permit"},
		{
			Policy: "inner", Limiter: "inner/shadow of script", Matched: true, Granted: true, Reason: "it cannot be asked without taking a permit",
			Warning: "the strategy is in shadow mode: it only reports, and lets the execution go on",
		},
		{Policy: "outer", Limiter: "outer/RateLimiter", Matched: true, Granted: true},
	}
	assert.Equal(t, want, CheckPipeline(t.Context(), outer))
	for _, l := range []limiter.Limiter{slots, window} {
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
	}
	control.Isolate()
	got := CheckPipeline(t.Context(), outer)
	assert.Positive(t, got[5].RetryAfter)
	got[5].RetryAfter = 0
	want[0].Granted, want[0].Reason = false, "no permit free; a call that waits can join the queue"
	want[1].Granted, want[1].Reason = false, "the circuit is isolated"
	want[2].Reason = "no permit free"
	want[2].Warning = "the strategy is in shadow mode: it only reports, and lets the execution go on"
	want[5].Granted, want[5].Reason = false, "no permit free"
	assert.Equal(t, want, got)

	require.NoError(t, window.Close())
	got = CheckPipeline(t.Context(), outer)
	assert.Equal(t, limiter.ErrClosed.Error(), got[5].Reason)
	assert.Equal(t, "the limiter returned an error, as a call would get it", got[5].Warning)
}

func TestCheck_Queue(t *testing.T) {
	s := newScene(t, func(s *scene, _ *Options) {
		s.define("slots", func(b *registry.Builder) error {
			l := b.Concurrency("slots", limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 5})
			b.Add(ratelimit.New(l, nil))
			lease, err := l.TryAcquire(context.Background(), 1)
			assert.True(s.t, lease.Acquired())
			return err
		})
	})
	c, _ := s.checkAnswer("limiter=slots")
	assert.Equal(t, "no permit free; a call that waits can join the queue", c.Results[0].Reason)
}

func TestCheck_StoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weir.Must(store.New(&awayBackend{}, &store.Options{NoListen: true, FailureThreshold: 1}))
		defer func() { _ = st.Close() }()
		s := newScene(t, func(s *scene, _ *Options) {
			s.define("shared", func(b *registry.Builder) error {
				b.Add(ratelimit.New(registry.Shared(b, st, "shared", limiter.PerSecond(5, 5), &store.LimiterOptions{Outage: store.FailOpen}), nil))
				return nil
			})
		})
		c, status := s.checkAnswer("limiter=shared")
		assert.Equal(t, http.StatusOK, status)
		require.Len(t, c.Results, 1)
		assert.NotEmpty(t, c.Results[0].Warning)
		assert.Contains(t, s.html("/check?limiter=shared"), "Warning: ")
	})
}

func TestCheck_Request(t *testing.T) {
	var got *http.Request
	var answer error
	s := newScene(t, func(_ *scene, o *Options) {
		o.Check = func(r *http.Request) ([]CheckResult, error) {
			got = r
			_, hasDeadline := r.Context().Deadline()
			assert.True(t, hasDeadline)
			return []CheckResult{
				{Policy: "a", Limiter: "one", Key: "alice", Matched: true, Granted: true},
				{Policy: "b", Limiter: "two", Reason: "other method"},
			}, answer
		}
	})
	c, status := s.checkAnswer("method=post&url=http://api.example.com/orders/7?x=1&header=X-Api-Key:%20abc&header=Host:%20other.example.com&remote=192.0.2.7")
	assert.Equal(t, http.StatusOK, status)
	assert.True(t, c.Granted, "a limit that does not apply rejects nothing")
	assert.Equal(t, s.dashboard.options.KeyHash.Hash("alice"), c.Results[0].Key)
	assert.Equal(t, http.MethodPost, got.Method)
	assert.Equal(t, "other.example.com", got.Host)
	assert.Equal(t, "/orders/7", got.URL.Path)
	assert.Equal(t, "abc", got.Header.Get("X-Api-Key"))
	assert.Equal(t, "192.0.2.7:0", got.RemoteAddr)

	_, _ = s.checkAnswer("url=/orders&header=" + url.QueryEscape("A: 1\r\nB: 2\n"))
	assert.Equal(t, "/orders", got.RequestURI)
	assert.Equal(t, http.Header{"A": {"1"}, "B": {"2"}}, got.Header)
	assert.Equal(t, "127.0.0.1:0", got.RemoteAddr)
	_, _ = s.checkAnswer("url=/&remote=%5B2001:db8::1%5D:80")
	assert.Equal(t, "[2001:db8::1]:0", got.RemoteAddr)

	answer = errors.New("no routes")
	c, status = s.checkAnswer("url=/orders")
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Equal(t, "no routes", c.Error)
	assert.False(t, c.Granted)
}

func TestCheck_WrongInput(t *testing.T) {
	s := newScene(t, func(_ *scene, o *Options) {
		o.Check = func(r *http.Request) ([]CheckResult, error) {
			if r.URL.Path == "/panic" {
				panic("no check")
			}
			return nil, nil
		}
	})
	for parameters, want := range map[string]struct {
		status int
		text   string
	}{
		"":                             {400, "Say what to check: url=/orders, or pipeline=NAME, or limiter=NAME, with key=KEY for a limiter that has one for each."},
		"limiter=bukcet":               {404, `there is no limiter "bukcet"`},
		"pipeline=ordres":              {404, `there is no pipeline "ordres"`},
		"limiter=bucket&permits=-1":    {400, `permits must be a number of at least 0, got "-1"`},
		"limiter=bucket&permits=x":     {400, `permits must be a number of at least 0, got "x"`},
		"url=orders":                   {400, `url must be a path such as /orders or a URL such as http://api.example.com/orders, got "orders"`},
		"url=/&method=A%20B":           {400, `method must be that of a request, such as GET, got "A B"`},
		"url=/&header=nothing":         {400, `header must be of the form Name: value, got "nothing"`},
		"url=/&remote=somewhere":       {400, `remote must be an address such as 192.0.2.7, got "somewhere"`},
		"url=/panic":                   {500, "panic: no check"},
		"limiter=bucket&permits=99999": {200, ""},
	} {
		c, status := s.checkAnswer(parameters)
		assert.Equal(t, want.status, status, parameters)
		assert.Equal(t, want.text, c.Error, parameters)
	}
	plain := newScene(t, nil)
	c, status := plain.checkAnswer("url=/orders")
	assert.Equal(t, http.StatusNotImplemented, status)
	assert.Equal(t, "this program has no check of requests: give a pipeline or a limiter", c.Error)
	assert.NotContains(t, plain.html("/check"), "A request")
	assert.Contains(t, s.html("/check"), "A request")
	assert.NotContains(t, s.html("/check"), "Answer")
}
