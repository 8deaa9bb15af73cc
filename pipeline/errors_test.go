package pipeline_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/pipeline"
)

type retryAfter time.Duration

func (r retryAfter) Error() string                     { return "busy" }
func (r retryAfter) RetryAfter() (time.Duration, bool) { return time.Duration(r), r != 0 }

// retryWrapper says something itself only if it knows, and wraps another.
type retryWrapper struct {
	retryAfter
	inner error
}

func (r retryWrapper) Unwrap() error { return r.inner }

func TestRetryAfter(t *testing.T) {
	const s = time.Second
	cases := []struct {
		name string
		err  error
		want time.Duration
		ok   bool
	}{
		{"nil", nil, 0, false},
		{"plain", errBoom, 0, false},
		{"known", retryAfter(s), s, true},
		{"not known", retryAfter(0), 0, false},
		{"negative", retryAfter(-s), 0, true},
		{"wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", retryAfter(s))), s, true},
		{"joined: the longest", errors.Join(errBoom, retryAfter(s), retryAfter(3*s), retryAfter(2*s)), 3 * s, true},
		{"joined, none", errors.Join(errBoom, errBoom), 0, false},
		{"joined inside of wrapped", fmt.Errorf("a: %w, %w", errBoom, errors.Join(retryAfter(s))), s, true},
		{"the outer one speaks for the inner", retryWrapper{retryAfter(s), retryAfter(5 * s)}, s, true},
		{"unless it does not know", retryWrapper{0, retryAfter(5 * s)}, 5 * s, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d, ok := pipeline.RetryAfter(c.err)
			assert.Equal(t, c.want, d)
			assert.Equal(t, c.ok, ok)
		})
	}
}

type notCalled bool

func (n notCalled) Error() string   { return "rejected" }
func (n notCalled) NotCalled() bool { return bool(n) }

func TestNotCalled(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want bool
	}{
		{"nil", nil, false},
		{"plain", errBoom, false},
		{"rejected", notCalled(true), true},
		{"called", notCalled(false), false},
		{"wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", notCalled(true))), true},
		{"joined, all", errors.Join(notCalled(true), notCalled(true)), true},
		{"joined, not all", errors.Join(notCalled(true), errBoom), false},
		{"nothing is joined", joined{}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, pipeline.NotCalled(c.err)) })
	}
}

type joined struct{}

func (joined) Error() string   { return "nothing" }
func (joined) Unwrap() []error { return nil }

// may is an error that says whether another attempt may follow.
type may bool

func (m may) Error() string   { return "may" }
func (m may) Retryable() bool { return bool(m) }

func TestRetryable(t *testing.T) {
	cases := []struct {
		name             string
		err              error
		retryable, known bool
	}{
		{"nil", nil, false, false},
		{"plain", errBoom, false, false},
		{"yes", may(true), true, true},
		{"no", may(false), false, true},
		{"wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", may(false))), false, true},
		{"joined, none says", errors.Join(errBoom, errBoom), false, false},
		{"joined, one says yes", errors.Join(errBoom, may(true)), true, true},
		{"joined, one says no", errors.Join(errBoom, may(false), errBoom), false, true},
		{"joined, yes and no", errors.Join(may(true), may(false)), false, true},
		{"joined, no and yes", errors.Join(may(false), may(true)), false, true},
		{"joined, all say yes", errors.Join(may(true), may(true)), true, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			retryable, known := pipeline.Retryable(c.err)
			assert.Equal(t, c.retryable, retryable)
			assert.Equal(t, c.known, known)
		})
	}
}
