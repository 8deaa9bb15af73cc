// The driver of the browser starts processes.

//go:build !js

package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/tools/testserver"
)

// hostile is a name that would do harm if it got into a page, a style sheet or a script as it is.
const hostile = "\"><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b[31m\u202e</style>"

const file = `
limiters:
  orders:
    token_bucket: {token_limit: 50, tokens_per_period: 20, replenishment_period: 1s, queue_limit: 20}
  mail:
    fixed_window: {permit_limit: 5, window: 1h}
  search:
    sliding_window: {permit_limit: 300, window: 10s, segments_per_window: 10}
  per-client:
    partitioned:
      key: client
      each:
        token_bucket: {token_limit: 2, tokens_per_period: 1, replenishment_period: 1m}
pipelines:
  orders:
    strategies:
      - timeout: {timeout: 800ms}
      - rate_limiter: {limiter: orders}
      - retry: {max_retries: 2, delay: 20ms}
      - circuit_breaker: {consecutive_failures: 3, break_duration: 1h}
  newsletter:
    strategies:
      - rate_limiter: {limiter: mail}
  search:
    strategies:
      - rate_limiter: {limiter: search}
      - hedging: {delay: 30ms, max_hedges: 1}
  public-api:
    strategies:
      - rate_limiter: {limiter: per-client}
`

type clientKey struct{}

// A program is one that has a dashboard.
type program struct {
	server   *httptest.Server
	registry *registry.Registry
	url      string // of the dashboard
}

// newProgram starts a program with a dashboard, and executions that succeed, fail and are rejected. change can be nil.
func newProgram(t *testing.T, change func(o *dashboard.Options)) *program {
	t.Helper()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(config, []byte(file), 0o600))

	var events dashboard.Events
	p := &program{registry: registry.New(&registry.Options{Listener: &events})}
	t.Cleanup(func() { assert.NoError(t, p.registry.Close(context.WithoutCancel(t.Context()))) })
	s, err := store.New(storetest.NewMemory(), &store.Options{OnEvent: events.OnStoreEvent("redis")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	k := reload.NewKinds()
	k.RegisterKey("client", func(ctx context.Context) string { c, _ := ctx.Value(clientKey{}).(string); return c })
	w, err := reload.Start(t.Context(), p.registry, config, &reload.Options{Kinds: k, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	names := []string{"orders", "newsletter", "search", "public-api", hostile, "tenants"}
	require.NoError(t, p.registry.Define(hostile, func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.TokenBucket(hostile, limiter.PerSecond(5, 5)), nil))
		return nil
	}))
	require.NoError(t, p.registry.Define("tenants", func(b *registry.Builder) error {
		b.Add(ratelimit.New(registry.Shared(b, s, "tenants", limiter.PerSecond(100, 50), nil), nil))
		return nil
	}))
	o := dashboard.Options{
		Registry: p.registry, Events: &events, Watchers: []*reload.Watcher{w}, Stores: map[string]*store.Store{"redis": s},
		Instance: "orders-7d9f (eu-west-1)", Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	d, err := dashboard.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	mux := http.NewServeMux()
	mux.Handle("/ops/weir/", http.StripPrefix("/ops/weir", d))
	p.server = httptest.NewUnstartedServer(mux)
	p.server.Config.WriteTimeout = 2 * time.Second // shorter than a stream
	p.server.Start()
	t.Cleanup(p.server.Close)
	p.url = p.server.URL + "/ops/weir/"
	p.load(t, names)
	return p
}

// load runs each pipeline some times a second until the test ends.
func (p *program) load(t *testing.T, names []string) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, name := range names {
		orders, err := p.registry.Get(name)
		require.NoError(t, err)
		running.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				ctx := context.WithValue(ctx, clientKey{}, fmt.Sprintf("10.0.0.%d%s", i%3, hostile))
				_ = orders.Execute(pipeline.WithOperation(ctx, hostile), func(context.Context) error {
					if name == "orders" && i < 20 {
						return errors.New("POST https://pay.example.com: 503 " + hostile)
					}
					return nil
				})
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
}

func (p *program) host() string {
	u, _ := url.Parse(p.server.URL)
	return u.Host
}

func anybody(*http.Request, dashboard.Action) (string, error) { return "alice@example.com", nil }

// live waits until the page gets news from the server.
func (p *tab) live() { p.becomes(`document.getElementById("live")?.dataset.state === "live"`) }

// One browser serves all tests, because its start takes as long as most of them.
func TestDashboard(t *testing.T) {
	chromium := testserver.StartChromium(t)
	for name, test := range map[string]func(*testing.T, *testserver.Server){
		"Pages":          testPages,
		"StaysUpToDate":  testStaysUpToDate,
		"ManyTabs":       testManyTabs,
		"WithoutScripts": testWithoutScripts,
		"Actions":        testActions,
		"ForeignPage":    testForeignPage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for the next figures most of the time
			test(t, chromium)
		})
	}
}

var pages = []string{"overview", "pipelines", "limiters", "circuits", "keys", "events", "stores", "files", "check"}

func testPages(t *testing.T, chromium *testserver.Server) {
	p := newProgram(t, func(o *dashboard.Options) { o.Authorize = anybody; o.ShowKeys = true })
	b := newTab(t, chromium)
	b.do(chromedp.Navigate(p.url))
	b.becomes(`document.body.innerText.includes("rejects")`) // the first rates are there
	for _, name := range pages {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			b.do(chromedp.Navigate(p.url + name))
			if name != "check" {
				b.live()
			}
			require.NotEqual(t, "owned", eval[string](b, "document.title"))
			require.Zero(t, eval[int](b, `document.querySelectorAll("img, script:not([src]), [style], style").length`), "nothing inline")
			for _, scheme := range []string{"light", "dark"} {
				for _, width := range []int64{400, 1400, 900} {
					b.size(width, scheme == "dark")
					b.mustFit()
					b.picture(fmt.Sprintf("%s/%d/%s", t.Name(), width, scheme))
				}
				if scheme == "light" || name == "overview" || name == "check" { // these two have everything that has a color
					b.mustBeAccessible()
				}
			}
		})
	}
	b.mustBeSound(p.host())
}

func testStaysUpToDate(t *testing.T, chromium *testserver.Server) {
	p := newProgram(t, nil)
	b := newTab(t, chromium)
	b.do(chromedp.Navigate(p.url + "limiters"))
	b.live()
	// The focus and what was typed stay while the page changes under them.
	b.do(chromedp.SendKeys("#q", "sear"))
	eval[bool](b, `window.same = true`)
	text := `document.querySelector("#sections").innerText`
	before := eval[string](b, text)
	b.becomes(fmt.Sprintf("%s !== %q", text, before))
	assert.True(t, eval[bool](b, "window.same"), "the page was not loaded again")
	assert.Equal(t, "sear", eval[string](b, `document.querySelector("#q").value`))
	assert.Equal(t, "q", eval[string](b, "document.activeElement.id"))
	// A stream outlives the WriteTimeout of the server.
	started := eval[string](b, `document.getElementById("time").dateTime`)
	b.becomes(fmt.Sprintf(`Date.parse(document.getElementById("time").dateTime) - Date.parse(%q) > 3000`, started))
	assert.Equal(t, "live", eval[string](b, `document.getElementById("live").dataset.state`))
	b.do(chromedp.Click(".pause"))
	b.becomes(`document.getElementById("live").textContent === "paused"`)
	b.mustBeSound(p.host())
}

func testManyTabs(t *testing.T, chromium *testserver.Server) {
	p := newProgram(t, func(o *dashboard.Options) { o.MaxStreams = 2 })
	first := newTab(t, chromium)
	tabs := []*tab{first, first.another(), first.another()}
	for i, b := range tabs {
		b.do(chromedp.Navigate(p.url))
		if i < 2 {
			b.live()
		} else {
			b.becomes(`document.getElementById("live").dataset.state === "poll"`)
			assert.NotEmpty(t, eval[string](b, `document.getElementById("notice").textContent`), "the page says why")
		}
	}
	// The places of tabs that were left are free again.
	tabs[0].do(chromedp.Navigate("about:blank"))
	tabs[2].do(chromedp.Navigate(p.url + "events"))
	tabs[2].live()
}

func testWithoutScripts(t *testing.T, chromium *testserver.Server) {
	p := newProgram(t, nil)
	b := newTab(t, chromium)
	b.scripts(false)
	b.do(chromedp.Navigate(p.url+"limiters"), chromedp.SendKeys("#q", "mai"), chromedp.Submit("#q"))
	b.becomes(`location.search.includes("q=mai") && document.readyState === "complete"`)
	names := eval[string](b, `document.querySelector("#sections").innerText`)
	assert.Contains(t, names, "mail")
	assert.NotContains(t, names, "search")
	b.do(chromedp.Navigate(p.url + "check?pipeline=newsletter"))
	assert.Contains(t, eval[string](b, `document.querySelector("#answer").innerText`), "would be")
	b.mustBeSound(p.host())
}

func testActions(t *testing.T, chromium *testserver.Server) {
	p := newProgram(t, func(o *dashboard.Options) { o.Authorize = anybody })
	b := newTab(t, chromium)
	b.do(chromedp.Navigate(p.url + "limiters?q=mail"))
	b.becomes(`document.body.innerText.includes("Override")`)
	eval[bool](b, `(document.querySelector('a[href*="do=override"]').click(), true)`)
	b.becomes(`document.querySelector('form[method=post]') !== null`)
	b.mustBeAccessible()
	b.picture("override")
	b.do(
		chromedp.SetValue(`[name="set.permit_limit"]`, "500"),
		chromedp.SendKeys(`[name="reason"]`, "the newsletter of spring"),
		chromedp.Click("button.act"),
	)
	b.becomes(`document.body.innerText.includes("500")`)
	b.picture("overridden")
	o := overrideOf(t, p, "mail")
	require.NotNil(t, o)
	assert.Equal(t, 500, o.Options.(limiter.FixedWindowOptions).PermitLimit)
	assert.Equal(t, "alice@example.com", o.By)
	b.do(chromedp.Navigate(p.url + "limiters?q=mail"))
	b.becomes(`document.body.innerText.includes("the newsletter of spring")`)
	b.mustBeSound(p.host())
}

// A page of another origin cannot make the browser of a user do anything.
func testForeignPage(t *testing.T, chromium *testserver.Server) {
	p := newProgram(t, func(o *dashboard.Options) { o.Authorize = anybody })
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<form method="post" action="%saction"><input name="do" value="isolate"><input name="target" value="orders/CircuitBreaker"><input name="reason" value="x"></form>`, p.url)
	}))
	t.Cleanup(evil.Close)
	b := newTab(t, chromium)
	b.do(chromedp.Navigate(evil.URL), chromedp.Submit("form"))
	b.becomes(fmt.Sprintf(`location.href.startsWith(%q) && document.readyState === "complete"`, p.url))
	assert.Contains(t, eval[string](b, "document.body.innerText"), "does not come from a page of the dashboard")

}

func overrideOf(t *testing.T, p *program, name string) *registry.Override {
	t.Helper()
	for n, info := range p.registry.Limiters() {
		if n == name {
			return info.Override
		}
	}
	t.Fatalf("no limiter %q", name)
	return nil
}
