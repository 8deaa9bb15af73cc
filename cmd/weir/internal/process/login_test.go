package process

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/dashboard"
)

// Ten wrong passwords of an address are looked at, and then one each period; right ones and none do not count.
func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte("pass:word\n"), 0o600))
		p, err := New(Options{Stdout: io.Discard, Stderr: io.Discard}, Kind{Name: "gateway", Section: "test"})
		require.NoError(t, err)
		defer p.Close()
		l, err := newLogin(p, file)
		require.NoError(t, err)
		h := l.before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				user, err := authorize(r, dashboard.Action{})
				assert.NoError(t, err)
				assert.Equal(t, "ann", user)
			}
		}))
		ask := func(method, address, user, password string) *http.Response {
			r := httptest.NewRequestWithContext(t.Context(), method, "/action", nil)
			if r.RemoteAddr = address + ":1"; user != "" || password != "" {
				r.SetBasicAuth(user, password)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Result()
		}
		status := func(address, user, password string) int {
			return ask(http.MethodPost, address, user, password).StatusCode
		}
		assert.Equal(t, http.StatusOK, ask(http.MethodGet, "a", "", "").StatusCode)
		for range 20 {
			require.Equal(t, http.StatusOK, status("a", "ann", "pass:word"))
			require.Equal(t, http.StatusUnauthorized, status("a", "", "pass:word"), "who did it must be known")
		}
		assert.Contains(t, ask(http.MethodPost, "a", "", "").Header.Get("WWW-Authenticate"), `Basic realm="weir gateway"`)
		for range wrongPasswords {
			require.Equal(t, http.StatusUnauthorized, status("a", "eve", "wrong"))
		}
		resp := ask(http.MethodPost, "a", "ann", "pass:word")
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "a right guess tells nothing")
		assert.Equal(t, "30", resp.Header.Get("Retry-After"))
		assert.Equal(t, http.StatusOK, status("b", "ann", "pass:word"), "another address")
		time.Sleep(wrongPeriod)
		assert.Equal(t, http.StatusUnauthorized, status("a", "eve", "wrong"))
		assert.Equal(t, http.StatusTooManyRequests, status("a", "eve", "wrong"))

		require.NoError(t, os.WriteFile(file, []byte("another"), 0o600))
		assert.Equal(t, http.StatusOK, status("c", "ann", "another"), "it is read each time")
		require.NoError(t, os.Remove(file))
		assert.Equal(t, http.StatusForbidden, status("c", "ann", "another"))
		_, err = newLogin(p, file)
		assert.ErrorContains(t, err, "test.dashboard.token_file")
	})
}
