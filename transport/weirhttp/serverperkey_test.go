package weirhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/transport/weirhttp"
)

func from(h http.Handler, addr string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = addr
	r.Header.Set("X-Forwarded-For", "192.0.2.99")
	h.ServeHTTP(w, r)
	return w
}

func TestPerIP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := weirhttp.PerIP(3, time.Minute)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for i := range 3 {
			w := from(h, "192.0.2.1:1000")
			assert.Equal(t, http.StatusOK, w.Code)
			assert.Equal(t, "3", w.Header().Get("X-RateLimit-Limit"))
			assert.Equal(t, strconv.Itoa(2-i), w.Header().Get("X-RateLimit-Remaining"))
		}
		w := from(h, "192.0.2.1:2000")
		assert.Equal(t, http.StatusTooManyRequests, w.Code)
		after, err := strconv.Atoi(w.Header().Get("Retry-After"))
		assert.NoError(t, err)
		assert.Equal(t, http.StatusOK, from(h, "192.0.2.2:1").Code, "another client")
		for i := range 3 {
			assert.Equal(t, http.StatusOK, from(h, "[2001:db8::"+strconv.Itoa(i+1)+"]:1").Code)
		}
		assert.Equal(t, http.StatusTooManyRequests, from(h, "[2001:db8::4]:1").Code, "the same /64")
		time.Sleep(time.Duration(after) * time.Second)
		assert.Equal(t, http.StatusOK, from(h, "192.0.2.1:1000").Code)
		time.Sleep(time.Hour) // the housekeeping ends with the last key
	})
}

func TestPerIP_PanicsIfInvalid(t *testing.T) {
	for _, window := range []time.Duration{1, 7, 1001, time.Second, time.Minute + 1} {
		assert.NotPanics(t, func() { weirhttp.PerIP(1, window) }, window)
	}
	defer func() {
		err, _ := recover().(error)
		assert.ErrorIs(t, err, weir.ErrInvalidOptions)
		assert.EqualError(t, err, "weirhttp: n must be at least 1, got 0; window must be more than 0, got 0s")
	}()
	assert.Panics(t, func() { weirhttp.PerIP(1, -time.Second) })
	weirhttp.PerIP(0, 0)
}
