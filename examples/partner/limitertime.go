package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/transport/weirhttp"
)

// The load measures requests from outside. How long the limiter took of that, and why it has not decided, is in fields of the
// header.
const (
	serverTiming = "Server-Timing" // the field that browsers know: limiter;dur=1.25, in ms
	limiterError = "Limiter-Error"
)

// Failures of limiters that are not a code of PostgreSQL.
const (
	storeAway = "store away" // weir's
	undecided = "timeout"    // a SQL variant's
)

// timed records in the context of a request how long its limiter took.
type timed struct{ limiter.Partitioned[string] }

type tookKey struct{}

func (t timed) TryAcquire(ctx context.Context, user string, n int) (limiter.Lease, error) {
	began := time.Now()
	lease, err := t.Partitioned.TryAcquire(ctx, user, n)
	if took, ok := ctx.Value(tookKey{}).(*time.Duration); ok {
		*took = time.Since(began)
	}
	return lease, err
}

// withTook returns a context in which timed records.
func withTook(ctx context.Context) (recording context.Context, took *time.Duration) {
	took = new(time.Duration)
	return context.WithValue(ctx, tookKey{}, took), took
}

// granted adds the limiter's time to the header of a request that was granted.
func granted(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		addTiming(w, r)
		next(w, r)
	}
}

// rejected adds the limiter's time to the header of a request that was not granted, and the cause if the limiter has not
// decided. It writes no body, so the default answers.
func rejected(w http.ResponseWriter, r *http.Request, rejection weirhttp.Rejection) {
	addTiming(w, r)
	if _, away := store.OutageKey.From(rejection.Lease); away {
		w.Header().Set(limiterError, storeAway)
	} else if rejection.Err != nil {
		w.Header().Set(limiterError, errorName(rejection.Err))
	}
}

func addTiming(w http.ResponseWriter, r *http.Request) {
	if took, ok := r.Context().Value(tookKey{}).(*time.Duration); ok {
		w.Header().Set(serverTiming, fmt.Sprintf("limiter;dur=%.3f", float64(*took)/float64(time.Millisecond)))
	}
}

// limiterTime returns the limiter's time from the header of an answer.
func limiterTime(h http.Header) (took time.Duration, ok bool) {
	text, ok := strings.CutPrefix(h.Get(serverTiming), "limiter;dur=")
	if !ok {
		return 0, false
	}
	ms, err := strconv.ParseFloat(text, 64)
	return time.Duration(ms * float64(time.Millisecond)), err == nil
}

// errorName returns a short name of a limiter's error, the same for the same kind of error.
func errorName(err error) string {
	switch state := sqlState(err); {
	case state != "":
		return state
	case errors.Is(err, context.DeadlineExceeded):
		return undecided
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "error"
	}
}
