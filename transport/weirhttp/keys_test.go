package weirhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/transport/weirhttp"
)

func keyRequest(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://shop.example/orders/7", http.NoBody)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestHeader(t *testing.T) {
	key := weirhttp.Header("x-api-key")
	assert.Equal(t, "abc", key(keyRequest("X-Api-Key", "abc")))
	assert.Equal(t, weirhttp.AmbiguousKey, key(keyRequest("X-Api-Key", "abc", "X-Api-Key", "def")))
	assert.Equal(t, weirhttp.AmbiguousKey, key(keyRequest("X-Api-Key", "abc", "X-Api-Key", "abc")))
	assert.Empty(t, key(keyRequest()))
	assert.Equal(t, "shop.example", weirhttp.Header("host")(keyRequest()))
}

func TestKey_IsBounded(t *testing.T) {
	key := weirhttp.Header("X-Api-Key")
	longest := strings.Repeat("x", 128)
	assert.Equal(t, longest, key(keyRequest("X-Api-Key", longest)))

	digest := key(keyRequest("X-Api-Key", longest+"x"))
	assert.Len(t, digest, len("sha256:")+64)
	assert.NotEqual(t, digest, key(keyRequest("X-Api-Key", longest+"y")))
	assert.Equal(t, digest, key(keyRequest("X-Api-Key", longest+"x")))
	assert.NotEqual(t, digest, key(keyRequest("X-Api-Key", digest)), "a client cannot send the digest of another key")

	subject := weirhttp.Subject(func(*http.Request) string { return strings.Repeat("x", 1<<20) })
	assert.Len(t, subject(keyRequest()), len(digest))
	assert.Len(t, weirhttp.Composite(subject, subject)(keyRequest()), len(digest))
}

func TestSubject(t *testing.T) {
	key := weirhttp.Subject(func(r *http.Request) string { return r.Header.Get("X-User") })
	assert.Equal(t, "anna", key(keyRequest("X-User", "anna")))
}

func TestRoute(t *testing.T) {
	key := weirhttp.Route()
	assert.Empty(t, key(keyRequest()))
	var got string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(_ http.ResponseWriter, r *http.Request) { got = key(r) })
	mux.ServeHTTP(httptest.NewRecorder(), keyRequest())
	assert.Equal(t, "GET /orders/{id}", got)
}

func TestComposite_IsNotAmbiguous(t *testing.T) {
	a, b := weirhttp.Header("A"), weirhttp.Header("B")
	key := weirhttp.Composite(a, b)
	assert.Equal(t, "3:x:y1:z", key(keyRequest("A", "x:y", "B", "z")))
	assert.NotEqual(t, key(keyRequest("A", "x", "B", "yz")), key(keyRequest("A", "xy", "B", "z")))
	assert.NotEqual(t, key(keyRequest("A", "1:x", "B", "")), key(keyRequest("A", "", "B", "1:x")))
	assert.Empty(t, weirhttp.Composite()(keyRequest()))
}

func FuzzComposite(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("1:a", "", "", "1:a")
	f.Add(strings.Repeat("x", 100), strings.Repeat("y", 100), "z", "z")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		var parts [2]string
		key := weirhttp.Composite(
			weirhttp.Subject(func(*http.Request) string { return parts[0] }),
			weirhttp.Subject(func(*http.Request) string { return parts[1] }))
		parts = [2]string{a, b}
		one := key(nil)
		parts = [2]string{c, d}
		other := key(nil)
		if (one == other) != (a == c && b == d) {
			t.Errorf("(%q, %q) is %q, (%q, %q) is %q", a, b, one, c, d, other)
		}
		if len(one) > 128 {
			t.Errorf("a key of %d bytes", len(one))
		}
	})
}
