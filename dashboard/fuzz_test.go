package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// Whatever a client sends, the answer is one of the dashboard's, and HTML is valid UTF-8.
func FuzzServeHTTP(f *testing.F) {
	f.Add("/weir/limiters.json", "q=a&sort=rate", "text/html;q=0.5, */*")
	f.Add("//check", "url=http://a/b&header=A:+b&remote=[::1]:2&method=PUT", "application/json")
	f.Add("/check", "limiter=bucket&permits=18446744073709551616&key=%ff", "")
	f.Add("/action", "do=override&target=bucket", ";;q=,,/;q=x")
	f.Add("/jobs/", "type=%00&name=&key=#", "TEXT/HTML")
	r := registry.New(nil)
	if err := r.Define("orders", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.TokenBucket("bucket", limiter.PerSecond(5, 5)), nil))
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	weir.Must(r.Get("orders"))
	d := weir.Must(New(Options{
		Registry: r, Jobs: newFakeJobs(),
		Authorize: func(*http.Request, Action) (string, error) { return "alice", nil },
		Check:     func(*http.Request) ([]CheckResult, error) { return nil, nil },
	}))
	f.Cleanup(func() {
		_ = d.Close()
		_ = r.Close(f.Context())
	})
	f.Fuzz(func(t *testing.T, path, parameters, accept string) {
		name, _ := route(&http.Request{URL: &url.URL{Path: path}})
		if name == pageStream {
			return // it ends with the client
		}
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := httptest.NewRecorder()
			d.ServeHTTP(w, &http.Request{
				Method: method, URL: &url.URL{Path: path, RawQuery: parameters}, RequestURI: path,
				Header: http.Header{"Accept": {accept}}, Body: http.NoBody,
			})
			if w.Code == http.StatusInternalServerError || w.Code >= 600 {
				t.Errorf("%s %q?%q: status %d: %s", method, path, parameters, w.Code, w.Body)
			}
			if w.Header().Get("Content-Type") == contentTypes[formatHTML] && !utf8.Valid(w.Body.Bytes()) {
				t.Errorf("%q?%q: not UTF-8", path, parameters)
			}
		}
	})
}
