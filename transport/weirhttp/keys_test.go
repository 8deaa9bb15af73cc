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
	huge := strings.Repeat("x", 1<<20)
	for _, key := range []weirhttp.Key{key, weirhttp.Subject(func(*http.Request) string { return huge }), weirhttp.Composite(key, key)} {
		assert.Len(t, key(keyRequest("X-Api-Key", huge)), len("sha256:")+64)
	}
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
