package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// acting makes a scene in which alice may do everything.
func acting(t *testing.T, change func(s *scene, o *Options)) *scene {
	return newScene(t, func(s *scene, o *Options) {
		o.Authorize = func(*http.Request, Action) (string, error) { return "alice", nil }
		if change != nil {
			change(s, o)
		}
	})
}

func (s *scene) act(name, target string, more ...string) (status int, text string) {
	form := url.Values{"do": {name}, "target": {target}}
	for i := 0; i+1 < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	w := s.post(form)
	return w.Code, w.Body.String()
}

func TestActions_ReadOnly(t *testing.T) {
	s := newScene(t, nil)
	status, text := s.act(ActionIsolate, "orders/CircuitBreaker")
	assert.Equal(t, http.StatusForbidden, status)
	assert.Equal(t, "This dashboard is read-only: the program has not set Options.Authorize. For weir gateway, set dashboard: {token_file: FILE}.\n", text)
	assert.Equal(t, http.StatusForbidden, s.get("/action?do=isolate&target=orders/CircuitBreaker").Code)
	for _, page := range allPages {
		assert.NotContains(t, s.html("/"+page), "do=", page)
		assert.NotContains(t, s.html("/"+page), `method="post"`, page)
	}
	assert.False(t, s.circuit().Isolated())
}

// circuit returns the Control of the circuit of orders.
func (s *scene) circuit() *circuitbreaker.Control {
	s.t.Helper()
	p := weir.Must(s.registry.Get("orders"))
	for _, c := range circuitsOf(p) {
		return c.Control()
	}
	s.t.Fatal("there is no circuit")
	return nil
}

func TestActions_FromOtherSites(t *testing.T) {
	s := acting(t, nil)
	form := url.Values{"do": {ActionIsolate}, "target": {"orders/CircuitBreaker"}}
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example.com"},
		{"Origin", "null"},
	} {
		w := s.post(form, headers...)
		assert.Equal(t, http.StatusForbidden, w.Code, headers)
	}
	w := s.get("/action?"+form.Encode(), "Accept", "text/html")
	assert.Equal(t, http.StatusOK, w.Code, "only asks")
	assert.False(t, s.circuit().Isolated())
	assert.Equal(t, http.StatusOK, s.post(form, "Sec-Fetch-Site", "same-origin", "Origin", "http://example.com").Code)
	assert.True(t, s.circuit().Isolated())
}

func TestActions_Authorize(t *testing.T) {
	var asked []Action
	s := newScene(t, func(_ *scene, o *Options) {
		o.Authorize = func(r *http.Request, a Action) (string, error) {
			asked = append(asked, a)
			switch r.Header.Get("User") {
			case "":
				return "", errors.New("log in first")
			case "panic":
				panic("no user")
			case "nameless":
				return " ", nil
			}
			return r.Header.Get("User"), nil
		}
	})
	form := url.Values{"do": {ActionIsolate}, "target": {"orders/CircuitBreaker"}}
	w := s.post(form)
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Equal(t, "You may not do this: log in first\n", w.Body.String())
	assert.Equal(t, []Action{{ActionIsolate, "orders/CircuitBreaker"}}, asked)
	assert.Equal(t, http.StatusForbidden, s.get("/action?"+form.Encode()).Code, "nor see what it would do")
	assert.Equal(t, http.StatusForbidden, s.post(form, "User", "panic").Code)
	assert.False(t, s.circuit().Isolated())
	assert.Contains(t, s.log.String(), `level=WARN msg="dashboard: action refused" action=isolate target=orders/CircuitBreaker error="log in first"`)

	assert.Equal(t, http.StatusOK, s.post(form, "User", "nameless").Code)
	assert.Equal(t, "unknown", s.view("/events.json?q=isolate").Events[0].User)
}

func TestActions_WrongInput(t *testing.T) {
	s := acting(t, func(_ *scene, o *Options) { o.Jobs = newFakeJobs() })
	for _, test := range []struct {
		form   url.Values
		status int
		text   string
	}{
		{url.Values{"do": {"explode"}}, 400, `There is no action "explode".`},
		{url.Values{}, 400, `There is no action "".`},
		{url.Values{"do": {ActionReload}, "target": {"/etc/passwd"}}, 404, `Not done: There is no configuration file "/etc/passwd" here.`},
		{url.Values{"do": {ActionIsolate}, "target": {"ordres"}}, 404, `Not done: There is no circuit "ordres".`},
		{url.Values{"do": {ActionOverride}, "target": {"bukcet"}}, 404, `Not done: There is no limiter "bukcet".`},
		{url.Values{"do": {ActionRelease}, "type": {"semaphore"}, "name": {"imports"}, "job": {"x"}}, 400, `job must be the number of a job, got "x"`},
		{url.Values{"do": {ActionRelease}, "type": {"semaphore"}, "name": {"imports"}, "key": {"#nothing"}, "job": {"1"}}, 404, "there is no such key: #nothing"},
	} {
		w := s.post(test.form)
		assert.Equal(t, test.status, w.Code, test.form)
		assert.Equal(t, test.text+"\n", w.Body.String())
	}
	r, err := http.NewRequest(http.MethodPost, "/action", strings.NewReader("do="+strings.Repeat("x", maxForm)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := s.send(r)
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	assert.Contains(t, w.Body.String(), "The form cannot be read: ")
}

func TestActions_Reload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(limit string) {
		text := "pipelines: {filed: {strategies: [{rate_limiter: {name: filed, concurrency: {permit_limit: " + limit + "}}}]}}\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("3")
	s := acting(t, func(s *scene, o *Options) {
		w, err := reload.Start(t.Context(), s.registry, path, &reload.Options{Interval: time.Hour, Settle: time.Millisecond, Reporter: s.events, Logger: o.Logger})
		require.NoError(t, err)
		t.Cleanup(w.Stop)
		o.Watchers = []*reload.Watcher{w}
		_, err = s.registry.Get("filed")
		require.NoError(t, err)
	})
	write("4")
	assert.Contains(t, s.html("/files"), `name="target" value="`+path+`"`)
	status, text := s.act(ActionReload, path)
	assert.Equal(t, http.StatusOK, status, text)
	d := s.view("/overview.json")
	require.Len(t, d.Files, 1)
	assert.Equal(t, []string{"filed"}, d.Files[0].Pipelines)

	write("none")
	status, text = s.act(ActionReload, path)
	assert.Equal(t, http.StatusUnprocessableEntity, status)
	assert.Contains(t, text, "permit_limit")
	d = s.view("/files.json")
	assert.Contains(t, d.Files[0].Error, "permit_limit")
	assert.Contains(t, s.html("/overview"), "stays in force")
	assert.Contains(t, s.log.String(), `msg="dashboard: action failed" action=reload`)
	var names []string
	for _, e := range s.view("/events.json").Events {
		names = append(names, e.Name)
	}
	assert.Contains(t, names, "ConfigRefused")
	assert.Contains(t, names, "Dashboard reload")
}

func TestActions_IsolateSurvivesAReload(t *testing.T) {
	s := acting(t, nil)
	page := s.html("/action?do=isolate&target=orders/CircuitBreaker")
	assert.Contains(t, page, "every call is rejected until it is closed by hand")
	assert.Contains(t, page, `<input type="hidden" name="target" value="orders/CircuitBreaker">`)
	status, _ := s.act(ActionIsolate, "orders/CircuitBreaker")
	require.Equal(t, http.StatusOK, status)

	for range 2 {
		d := s.view("/overview.json")
		require.Len(t, d.Circuits, 1)
		assert.Equal(t, "isolated", d.Circuits[0].State)
		assert.Equal(t, "alice", d.Circuits[0].IsolatedBy)
		p := weir.Must(s.registry.Get("orders"))
		require.ErrorAs(t, p.Execute(t.Context(), func(context.Context) error { return nil }), new(*circuitbreaker.OpenError))
		before := s.circuit()
		require.NoError(t, s.registry.Reload(t.Context(), "orders"))
		assert.NotSame(t, before, s.circuit(), "the reload has made another circuit")
		assert.True(t, s.circuit().Isolated(), "at once, not at the next sample")
	}
	status, _ = s.act(ActionClose, "orders/CircuitBreaker")
	require.Equal(t, http.StatusOK, status)
	assert.False(t, s.circuit().Isolated())
	require.NoError(t, s.registry.Reload(t.Context(), "orders"))
	assert.False(t, s.circuit().Isolated())
	assert.Contains(t, s.log.String(), `msg="dashboard: action done" action=close target=orders/CircuitBreaker user=alice`)
	e := s.view("/events.json?q=dashboard").Events
	require.Len(t, e, 2)
	assert.Equal(t, "Dashboard close", e[0].Name)
	assert.Equal(t, "alice", e[0].User)
}

// What the program does with its own Control comes first.
func TestActions_IsolateAndTheProgram(t *testing.T) {
	s := acting(t, nil)
	status, _ := s.act(ActionIsolate, "orders/CircuitBreaker")
	require.Equal(t, http.StatusOK, status)
	s.circuit().Reset()
	_ = s.view("/overview.json")
	assert.False(t, s.circuit().Isolated(), "the program has closed it")
	require.NoError(t, s.registry.Reload(t.Context(), "orders"))
	assert.False(t, s.circuit().Isolated())
}

// A reload comes between the look at a pipeline and the isolation of its circuits.
func TestActions_IsolateWhileReloading(t *testing.T) {
	held, looking := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	name := func() {
		if hold.CompareAndSwap(true, false) {
			close(looking)
			<-held
		}
	}
	s := acting(t, func(s *scene, _ *Options) {
		s.define("slow", func(b *registry.Builder) error {
			b.Add(slowName{name}, circuitbreaker.New(nil))
			return nil
		})
	})
	status, text := s.act(ActionIsolate, "slow/CircuitBreaker")
	require.Equal(t, http.StatusOK, status, text)
	p := weir.Must(s.registry.Get("slow"))
	hold.Store(true)
	looked := make(chan struct{})
	go func() { defer close(looked); s.events.isolations.again(p) }() // as the sampler does
	<-looking
	reloaded := make(chan error, 1)
	go func() { reloaded <- s.registry.Reload(context.Background(), "slow") }()
	select {
	case <-looked:
	case <-time.After(50 * time.Millisecond): // the new version is in force, or comes later
	}
	close(held)
	require.NoError(t, <-reloaded)
	<-looked
	for _, c := range circuitsOf(p) {
		assert.True(t, c.Control().Isolated())
		c.Control().Reset()
	}
	_ = s.view("/overview.json")
	for _, c := range circuitsOf(p) {
		assert.False(t, c.Control().Isolated(), "the program has closed it")
	}
}

// slowName is a strategy whose Name calls a function.
type slowName struct{ named func() }

func (s slowName) Execute(ctx context.Context, next pipeline.Next) (any, error) { return next.Run(ctx) }
func (s slowName) Name() string                                                 { s.named(); return "Slow" }

func TestActions_SharedControl(t *testing.T) {
	control := new(circuitbreaker.Control)
	s := acting(t, func(s *scene, _ *Options) {
		for _, name := range []string{"one", "two"} {
			s.define(name, func(b *registry.Builder) error {
				b.Add(circuitbreaker.New(&circuitbreaker.Options{Control: control}))
				return nil
			})
		}
	})
	assert.Contains(t, s.html("/action?do=isolate&target=one/CircuitBreaker"), "One Control has these circuits together: one/CircuitBreaker, two/CircuitBreaker.")
}

func TestActions_Override(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := acting(t, nil)
		page := s.html("/action?do=override&target=bucket")
		assert.Contains(t, page, `name="set.token_limit" value="3"`)
		w := s.post(url.Values{
			"do": {ActionOverride}, "target": {"bucket"}, "reason": {"sale"}, "for": {"10m"},
			"set.token_limit": {"10"}, "set.tokens_per_period": {"5"}, "set.replenishment_period": {"1s"}, "set.queue_limit": {""}, "set.queue_order": {"oldest_first"},
		}, "Accept", "text/html")
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		assert.Contains(t, w.Body.String(), "<pre tabindex=\"0\">token_bucket:\n  token_limit: 10\n")
		until := time.Now().Add(10 * time.Minute)

		bucket := s.view("/limiters.json?q=bucket").Limiters[0]
		assert.Equal(t, "bursts of 10, then 5 a second", bucket.Limits)
		assert.Contains(t, bucket.Options, field{"token_limit", "10"})
		assert.Contains(t, bucket.Configured, field{"token_limit", "3"})
		require.NotNil(t, bucket.Override)
		assert.Equal(t, "alice", bucket.Override.By)
		assert.Equal(t, "sale", bucket.Override.Reason)
		assert.True(t, until.Equal(bucket.Override.Until))
		assert.Contains(t, s.html("/limiters"), "The configuration says token_limit 3")
		assert.Contains(t, s.get("/overview").Body.String(), "override by alice")

		require.NoError(t, s.registry.Reload(t.Context(), "orders"), "a reload keeps it")
		assert.NotNil(t, s.view("/limiters.json?q=bucket").Limiters[0].Override)
		assert.Contains(t, s.html("/action?do=end-override&target=bucket"), "The override by alice would end at")
		time.Sleep(11 * time.Minute)
		bucket = s.view("/limiters.json?q=bucket").Limiters[0]
		assert.Nil(t, bucket.Override)
		assert.Equal(t, "bursts of 3, then 1 an hour", bucket.Limits)
	})
}

func TestActions_OverrideCalendar(t *testing.T) {
	s := acting(t, func(s *scene, _ *Options) {
		s.define("daily", func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Limiter("daily", limiter.CalendarOptions{PermitLimit: 5, Every: rate.Day}), nil))
			return nil
		})
	})
	status, text := s.act(ActionOverride, "daily", "set.every", "month", "set.zone", "UTC", "for", "1h", "reason", "test")
	require.Equal(t, http.StatusOK, status, text)
	assert.Equal(t, "5 each month, in UTC", s.view("/limiters.json?q=daily").Limiters[0].Limits)
}

func TestActions_EndOverride(t *testing.T) {
	s := acting(t, nil)
	status, text := s.act(ActionOverride, "per-client", "set.permit_limit", "7", "for", "1h", "reason", "test")
	require.Equal(t, http.StatusOK, status, text)
	assert.Contains(t, text, "\nfixed_window:\n  permit_limit: 7\n")
	assert.Equal(t, "7 an hour", s.view("/limiters.json?q=per-client").Limiters[0].Limits)
	status, text = s.act(ActionEndOverride, "per-client")
	require.Equal(t, http.StatusOK, status, text)
	assert.Nil(t, s.view("/limiters.json?q=per-client").Limiters[0].Override)
	assert.Equal(t, http.StatusConflict, s.get("/action?do=end-override&target=per-client").Code)
	status, _ = s.act(ActionEndOverride, "per-client")
	assert.Equal(t, http.StatusConflict, status)
	var texts []string
	for _, e := range s.view("/events.json").Events {
		texts = append(texts, e.Name+": "+e.Text)
	}
	assert.Contains(t, strings.Join(texts, "\n"), registry.EventOverridden+": limiter per-client: permit_limit 7, window 1h until ")
	assert.Contains(t, strings.Join(texts, "\n"), registry.EventOverrideEnded+": limiter per-client: ended by alice")
}

// What is offered to be pasted is right.
func TestActions_OverrideYAML(t *testing.T) {
	for _, limits := range []limiter.Options{
		limiter.TokenBucketOptions{TokenLimit: 5, TokensPerPeriod: 2, ReplenishmentPeriod: 90 * time.Second, QueueLimit: 3, QueueOrder: limiter.NewestFirst},
		limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Minute},
		limiter.SlidingWindowOptions{PermitLimit: 5, Window: time.Minute, SegmentsPerWindow: 6},
		limiter.ConcurrencyOptions{PermitLimit: 5, QueueLimit: 1},
		limiter.CalendarOptions{PermitLimit: 5, Every: rate.MonthFrom(15), Zone: "Europe/Berlin"},
	} {
		text := "limiters:\n  orders:\n    " + strings.ReplaceAll(yamlOf(limits), "\n", "\n    ")
		f, err := reload.Parse("weir.yaml", []byte(text+"\nallow_empty: true\n"), nil)
		require.NoError(t, err, text)
		assert.Equal(t, []string{"orders"}, f.Limiters())
	}
}

func TestActions_OverrideInAStoreThatIsAway(t *testing.T) {
	st := weir.Must(store.New(&awayBackend{}, &store.Options{NoListen: true, FailureThreshold: 1}))
	defer func() { _ = st.Close() }()
	s := acting(t, func(s *scene, _ *Options) {
		s.define("shared", func(b *registry.Builder) error {
			b.Add(ratelimit.New(registry.Shared(b, st, "shared", limiter.PerSecond(5, 5), nil), nil))
			return nil
		})
	})
	status, text := s.act(ActionOverride, "shared", "set.token_limit", "7", "for", "1h", "reason", "test")
	assert.Equal(t, http.StatusServiceUnavailable, status, text)
	status, text = s.act(ActionEndOverride, "shared")
	assert.Equal(t, http.StatusServiceUnavailable, status, text)
}

func TestActions_ConfirmationIsHTML(t *testing.T) {
	w := acting(t, nil).get("/action?do=override&target=bucket", "Accept", "application/json")
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
	assert.Equal(t, "POST", w.Header().Get("Allow"))
	assert.Contains(t, w.Body.String(), "Send it by POST to do it: Give the limiter bucket other limits for a while.")
}

func TestActions_OverrideWrongInput(t *testing.T) {
	s := acting(t, nil)
	w := s.post(url.Values{
		"do": {ActionOverride}, "target": {"bucket"}, "for": {"10 minutes"},
		"set.token_limit": {"ten"}, "set.replenishment_period": {"1"}, "set.queue_order": {"any"},
	}, "Accept", "text/html")
	assert.Equal(t, http.StatusUnprocessableEntity, w.Code)
	for _, text := range []string{
		`token limit must be a whole number, got &#34;ten&#34;`, `replenishment period must be a duration such as 1s or 500ms, got &#34;1&#34;`,
		`queue order `, `for how long must be a duration from 1s to 168h, such as 15m, got &#34;10 minutes&#34;`, `reason must be set`,
		`name="set.token_limit" value="ten"`,
	} {
		assert.Contains(t, w.Body.String(), text)
	}
	status, text := s.act(ActionOverride, "bucket", "set.token_limit", "-5", "for", "1m", "reason", "x")
	assert.Equal(t, http.StatusUnprocessableEntity, status)
	assert.Contains(t, text, "TokenLimit must be at least 1, got -5")
	status, text = s.act(ActionOverride, "bucket", "set.token_limt", "5", "token_limit", "5", "for", "1m", "reason", "x")
	assert.Equal(t, http.StatusUnprocessableEntity, status)
	assert.Contains(t, text, `there is no field "set.token_limt", there are do, target, for, reason, set.token_limit, set.tokens_per_period`)
	assert.Contains(t, text, `there is no field "token_limit"`)
	assert.Nil(t, s.view("/limiters.json?q=bucket").Limiters[0].Override)
}

func TestActions_Release(t *testing.T) {
	jobs := newFakeJobs()
	var asked []Action
	s := newScene(t, func(_ *scene, o *Options) {
		o.Jobs = jobs
		o.Authorize = func(_ *http.Request, a Action) (string, error) {
			asked = append(asked, a)
			return "alice", nil
		}
	})
	list := s.html("/jobs?type=semaphore&name=imports")
	assert.NotContains(t, list, "acme")
	key := url.QueryEscape(s.dashboard.options.KeyHash.Hash("acme"))
	assert.Contains(t, list, "jobs?key="+key)
	page := s.html("/jobs?type=semaphore&name=imports&key=" + key)
	assert.Contains(t, page, "nightly")
	assert.NotContains(t, page, "acme")
	assert.Contains(t, s.html("/action?do=release&type=semaphore&name=imports&job=7&owner=nightly&key="+key), "another one can run beside it")

	form := url.Values{"do": {ActionRelease}, "type": {"semaphore"}, "name": {"imports"}, "job": {"7"}, "owner": {"nightly"}, "key": {s.dashboard.options.KeyHash.Hash("acme")}}
	assert.Equal(t, http.StatusOK, s.post(form).Code)
	assert.Equal(t, []JobHolder{{Job: 8}}, jobs.holders["acme"])
	assert.Equal(t, Action{ActionRelease, "semaphore/imports/acme"}, asked[len(asked)-1])
	w := s.post(form)
	assert.Equal(t, http.StatusConflict, w.Code)
	assert.Contains(t, w.Body.String(), "Not done: job 7 has no slot in semaphore/imports/#")
	assert.NotContains(t, s.log.String(), "acme")
	jobs.err = errBoom
	assert.Equal(t, http.StatusBadGateway, s.post(form).Code, "it is not known whether there is such a key")
	form.Del("key")
	assert.Equal(t, http.StatusBadGateway, s.post(form).Code)
	jobs.err = badError{}
	w = s.post(form)
	assert.Equal(t, http.StatusBadGateway, w.Code)
	assert.Contains(t, w.Body.String(), "Not done: ")
	jobs.err = errBoom
	assert.Equal(t, http.StatusBadGateway, s.get("/jobs.json?type=semaphore&name=imports").Code)
	assert.Equal(t, http.StatusNotFound, newScene(t, nil).get("/jobs?type=semaphore&name=imports").Code)
}
