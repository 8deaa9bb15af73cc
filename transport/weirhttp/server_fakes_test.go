package weirhttp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/weirtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errStore = errors.New("the store is down")

// A scripted is a limiter that gives the answers of a script.
type scripted struct{ *weirtest.Limiter }

func follows(script ...weirtest.Answer) scripted { return scripted{weirtest.NewLimiter(script...)} }
func yes() scripted                              { return follows() }
func no() scripted                               { return follows(weirtest.Reject(1500*time.Millisecond, "")) }
func fails() scripted                            { return follows(weirtest.Fail(errStore)) }

func (s scripted) check(t *testing.T, asked, released, undone int) {
	t.Helper()
	got := [3]int{len(s.Calls()), s.Count(weirtest.Released), s.Count(weirtest.Refunded)}
	require.Equal(t, [3]int{asked, released, undone}, got, "asked, released, undone")
}

// answers returns a rejection handler that answers with a status.
func answers(status int) Body {
	return func(w http.ResponseWriter, _ *http.Request, _ Rejection) { w.WriteHeader(status) }
}

func get(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w
}

func concurrency(t testing.TB, permits, queue int) *limiter.Concurrency {
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits, QueueLimit: queue}))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func bucket(t testing.TB, tokens int) *limiter.TokenBucket {
	l := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: tokens, TokensPerPeriod: tokens, ReplenishmentPeriod: time.Hour,
	}))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// names returns the names of events with the names of their policies.
func names(events []pipeline.Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, e.Name+" "+e.Source.Strategy)
	}
	return all
}
