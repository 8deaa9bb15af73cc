package store_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store"
)

// A backend that panics or ends our goroutines where it listens, loads and is looked for ends nothing else.
func TestBackend_PanicsOnOurGoroutines(t *testing.T) {
	for _, rude := range []func(){func() { panic("out of order") }, runtime.Goexit} {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.instance(store.Options{})
			l := must2(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
			w.hook(func(method string) error {
				if method == "Listen" || method == "Load" {
					rude()
				}
				return nil
			}, nil)
			for range 4 {
				w.rejected(l, 1)
			}
			require.Error(t, s.Health().Err)
			w.hook(func(string) error { rude(); return nil }, nil)
			w.pass(10 * time.Second)
			require.Error(t, s.Health().Err, "the probe has not come back")
			w.hook(nil, nil)
			w.pass(40 * time.Second)
			require.NoError(t, s.Health().Err)
			w.granted(l, 10)
			require.True(t, s.Health().Listening)
		})
	}
}
