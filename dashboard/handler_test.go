package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/ratelimit"
)

var allPages = []string{"overview", "limiters", "pipelines", "circuits", "keys", "events", "stores", "files", "jobs", "check"}

func TestNew_WrongOptions(t *testing.T) {
	_, err := New(Options{Stores: map[string]*store.Store{"redis": nil}, Watchers: []*reload.Watcher{nil}, Jobs: (*fakeJobs)(nil), KeyHash: new(KeyHash)})
	var wrong *weir.OptionsError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, "dashboard: Registry must not be nil; Watchers[0] must not be nil; Stores[redis] must not be nil; Jobs must not be a nil pointer; KeyHash must be made with NewKeyHash", err.Error())
}

// What the program does to its map of stores later does not change the dashboard.
func TestNew_MapOfStores(t *testing.T) {
	stores := map[string]*store.Store{}
	s := newScene(t, func(_ *scene, o *Options) { o.Stores = stores })
	stores["late"] = nil
	assert.Equal(t, http.StatusOK, s.get("/stores.json").Code)
}

func TestServeHTTP_AnyPrefix(t *testing.T) {
	s := newScene(t, nil)
	mux := http.NewServeMux()
	mux.Handle("/weir/", http.StripPrefix("/weir", s.dashboard))
	mux.Handle("/weir", http.StripPrefix("/weir", s.dashboard))
	mux.Handle("/plain/ops/", s.dashboard)
	mux.Handle("GET /limiters/", s.dashboard) // called as one of the pages
	for path, title := range map[string]string{
		"/weir/":                    "Overview",
		"/weir/overview":            "Overview",
		"/weir/limiters":            "Limiters",
		"/weir/limiters/":           "Limiters",
		"/weir/limiters.html":       "Limiters",
		"/plain/ops/":               "Overview",
		"/plain/ops/circuits":       "Circuits",
		"/plain/ops/circuits/check": "Check",
		"/limiters/":                "Overview",
		"/limiters/limiters":        "Limiters",
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		assert.Equal(t, http.StatusOK, w.Code, path)
		assert.Contains(t, w.Body.String(), "<title>"+title+" – weir", path)
	}
	for _, path := range []string{"/x//limiters", "//limiters//", "/a/b/c/limiters"} { // as some proxies send them
		w := s.get(path)
		assert.Equal(t, http.StatusOK, w.Code, path)
		assert.Contains(t, w.Body.String(), "LIMITERS", path)
	}
	for _, path := range []string{"/nothing", "/weir.json", "/limiters.xml", "/.json"} {
		assert.Equal(t, http.StatusNotFound, s.get(path).Code, path)
	}

	r := httptest.NewRequest(http.MethodGet, "/weir?q=a%20b", nil)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	assert.Equal(t, http.StatusPermanentRedirect, w.Code)
	assert.Equal(t, "weir/?q=a%20b", w.Header().Get("Location"), "relative, because a proxy can have its own prefix")
}

// All links and forms are relative and have no directory, so that they work under any prefix.
func TestPages_RelativeLinksThatWork(t *testing.T) {
	s := newScene(t, func(s *scene, o *Options) {
		o.Authorize = func(*http.Request, Action) (string, error) { return "alice", nil }
		o.Jobs = newFakeJobs()
	})
	s.execute(t.Context(), "orders", 4, errBoom)
	links := regexp.MustCompile(`(?:href|src|action|data-stream)="([^"]*)"`)
	seen := map[string]bool{}
	check := func(page string) (found []string) {
		html := s.html("/" + page)
		for _, m := range links.FindAllStringSubmatch(html, -1) {
			link := strings.ReplaceAll(m[1], "&amp;", "&")
			if strings.HasPrefix(link, "#") || seen[link] {
				continue
			}
			seen[link] = true
			u, err := url.Parse(link)
			require.NoError(t, err)
			assert.False(t, u.IsAbs() || strings.Contains(u.Path, "/"), "%s: %s", page, link)
			found = append(found, link)
		}
		return found
	}
	var all []string
	for _, page := range allPages {
		all = append(all, check(page)...)
	}
	for i := range all {
		if strings.HasPrefix(all[i], "stream") {
			continue
		}
		w := s.get("/"+all[i], "Accept", "text/html")
		if strings.Contains(all[i], "do=close") || all[i] == "action" { // the circuit can be closed, and action has no parameters here
			continue
		}
		assert.Equal(t, http.StatusOK, w.Code, all[i])
	}
	assert.Contains(t, all, "action?do=override&target=bucket")
}

func TestPages_Formats(t *testing.T) {
	s := newScene(t, nil)
	for accept, want := range map[string]string{
		"": "text/plain; charset=utf-8",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "text/html; charset=utf-8",
		"*/*":                          "text/plain; charset=utf-8",
		"application/json":             "application/json",
		"application/json, text/plain": "application/json",
		"TEXT/HTML":                    "text/html; charset=utf-8",
		"image/png":                    "text/plain; charset=utf-8",
	} {
		w := s.get("/", "Accept", accept)
		assert.Equal(t, want, w.Header().Get("Content-Type"), accept)
		assert.Equal(t, "Accept", w.Header().Get("Vary"))
	}
	for _, page := range allPages {
		for suffix, want := range contentTypes {
			w := s.get("/"+page+"."+string(suffix)+"?limiter=bucket", "Accept", "image/png")
			if page == "jobs" {
				assert.Equal(t, http.StatusOK, w.Code)
			}
			assert.Equal(t, want, w.Header().Get("Content-Type"), page)
			assert.NotEmpty(t, w.Body.String())
			if suffix == formatJSON {
				assert.True(t, json.Valid(w.Body.Bytes()), page)
			}
		}
	}
}

func TestPages_HeadAndOtherMethods(t *testing.T) {
	s := newScene(t, nil)
	server := httptest.NewServer(s.dashboard)
	defer server.Close()
	for _, page := range append(allPages, "stream", "dashboard.css") {
		r, err := server.Client().Head(server.URL + "/" + page)
		require.NoError(t, err)
		body, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if page != "check" {
			assert.Equal(t, http.StatusOK, r.StatusCode, page)
		}
		assert.Empty(t, body)
	}
	assert.Zero(t, s.dashboard.streams.Load(), "HEAD opens no stream")
	for _, page := range append(allPages, "stream", "icon.svg") {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "\x7fX"} {
			w := s.send(&http.Request{Method: method, URL: &url.URL{Path: "/" + page}, Header: http.Header{}, Body: http.NoBody})
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method+" "+page)
			assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
	}
	w := s.send(httptest.NewRequest(http.MethodPut, "/action", nil))
	assert.Equal(t, "GET, HEAD, POST", w.Header().Get("Allow"))
}

// Nothing on a page may depend on what the policy forbids, and nothing may be kept by a browser or a proxy.
func TestPages_ContentSecurityPolicy(t *testing.T) {
	s := newScene(t, func(_ *scene, o *Options) {
		o.Authorize = func(*http.Request, Action) (string, error) { return "alice", nil }
	})
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script>|<script [^>]*>[^<]|<iframe|https?://[^ ]*\.(js|css)`)
	pages := append([]string{"action?do=override&target=bucket", "action?do=isolate&target=orders/CircuitBreaker", "check?pipeline=orders", "nothing"}, allPages...)
	for _, page := range pages {
		w := s.get("/"+page, "Accept", "text/html")
		assert.Empty(t, inline.FindString(w.Body.String()), page)
		assert.Equal(t, policy, w.Header().Get("Content-Security-Policy"))
		assert.Equal(t, "no-store, no-transform", w.Header().Get("Cache-Control"))
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	}
	assert.NotContains(t, policy, "unsafe")
}

func TestAssets(t *testing.T) {
	s := newScene(t, nil)
	for name, kind := range map[string]string{
		"dashboard.css": "text/css; charset=utf-8", "dashboard.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		w := s.get("/ops/" + name)
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, kind, w.Header().Get("Content-Type"))
		assert.NotEmpty(t, w.Body.String())
	}
}

// The names that a program or its users choose can be anything.
func TestPages_HostileNames(t *testing.T) {
	tags := regexp.MustCompile(`<(script>|img|svg/)`)
	name := `javascript:"><script>alert(1)</script><img src=x onerror=alert(1)><!-- --><svg/onload=alert(1)>&q=b#c?d=/e%2f/../../etc` +
		"\x1b[2J\r\n\x00b\u202egnp.exe\u2066\xff\xfe\n\nevent: tick\ndata: {}\n\n" + `{{.Instance}}"},{"name":"` // at most 256 bytes
	s := newScene(t, func(_ *scene, o *Options) {
		o.ShowKeys = true
		o.Instance = name
		o.Authorize = func(*http.Request, Action) (string, error) { return name, nil }
	})
	s.define(name, func(b *registry.Builder) error {
		l := registry.Partitioned(b, name, func(context.Context) string { return name + strings.Repeat("y", 3000) },
			limiter.FixedWindowOptions{PermitLimit: 1, Window: 1e15}, nil)
		b.Add(ratelimit.NewPartitioned(l, func(ctx context.Context) context.Context { return ctx }, &ratelimit.Options{Name: name}))
		b.Add(pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			next.Report(ctx, pipeline.Event{Name: name, Severity: pipeline.SeverityError, Err: fmt.Errorf("%s", name)})
			return next.Run(ctx)
		}))
		return nil
	})
	_ = s.get("/keys") // the limiter counts from now on
	s.execute(pipeline.WithOperation(t.Context(), name), name, 3, nil)
	q := url.QueryEscape(name)
	for _, page := range append([]string{
		"check?pipeline=" + q + "&key=" + q, "check?limiter=nothing" + q, "action?do=override&target=" + q, "action?do=" + q,
		"overview?q=" + q, url.PathEscape(name),
	}, allPages...) {
		html := s.html("/" + page)
		assert.True(t, utf8.ValidString(html), page)
		assert.Empty(t, tags.FindString(html), page)
		assert.NotContains(t, html, "could not be made", page)
		text := s.get("/" + page).Body.String()
		assert.NotContains(t, text, "\x1b", page)
		assert.NotContains(t, text, "\u202e", page)
		base, parameters, _ := strings.Cut(page, "?")
		if !strings.Contains(base, "%") && base != "action" {
			assert.True(t, json.Valid(s.get("/"+base+".json?"+parameters).Body.Bytes()), page)
		}
	}
	assert.Equal(t, http.StatusNotFound, s.post(url.Values{"do": {ActionIsolate}, "target": {name}}).Code)
	assert.Len(t, s.view("/keys.json").Keys, 2)
}

func TestPages_Filter(t *testing.T) {
	s := newScene(t, nil)
	for i := range 40 {
		s.define(fmt.Sprintf("service-%02d", i), func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Concurrency(fmt.Sprintf("slots-%02d", i), limiter.ConcurrencyOptions{PermitLimit: 5}), nil))
			return nil
		})
	}
	names := func(path string) (all []string) {
		for _, l := range s.view(path).Limiters {
			all = append(all, l.Name)
		}
		return all
	}
	assert.Len(t, names("/limiters.json"), 42)
	assert.Len(t, names("/overview.json"), overviewRows)
	assert.Equal(t, []string{"slots-13"}, names("/limiters.json?q=OTS-13"), "any part of the name, in any case")
	assert.Equal(t, []string{"slots-07"}, names("/limiters.json?q=service-07"), "also by the pipeline")
	assert.Empty(t, names("/limiters.json?q=nothing"))
	assert.Contains(t, s.html("/limiters?q=nothing"), "Nothing contains “nothing”.")
	assert.Contains(t, s.html("/overview"), `<a href="limiters">30 more</a>`)
	assert.Contains(t, s.html("/overview?q=slots"), `<a href="limiters?q=slots">28 more</a>`)

	for i := range pageRows {
		s.define(fmt.Sprintf("more-%03d", i), func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Concurrency(fmt.Sprintf("more-%03d", i), limiter.ConcurrencyOptions{PermitLimit: 5}), nil))
			return nil
		})
	}
	s.dashboard.outdate()
	assert.Len(t, names("/limiters.json"), 42+pageRows)
	assert.Contains(t, s.html("/limiters"), "42 more are not listed")
	assert.NotContains(t, s.html("/limiters?q=slots"), "are not listed")
}

// The links of a page filter by the whole name.
func TestPages_FilterByALongName(t *testing.T) {
	s := newScene(t, nil)
	long := strings.Repeat("long-", 50)
	s.define("orders-2", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency(long, limiter.ConcurrencyOptions{PermitLimit: 5}), nil))
		return nil
	})
	assert.Contains(t, s.html("/limiters"), `href="limiters?q=`+long+`"`)
	assert.Contains(t, s.html("/limiters?q="+long), `data-key="`+long+`"`)
	assert.Equal(t, strings.Repeat("é", maxFilter/2), string(filterOf(httptest.NewRequest(http.MethodGet, "/?q="+url.QueryEscape(strings.Repeat("é", maxFilter)), nil))))
}
