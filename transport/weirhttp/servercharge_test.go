package weirhttp

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// within runs f in a handler behind the policies.
func within(t *testing.T, l *Limits, f func(r *http.Request), route ...string) {
	t.Helper()
	ran := false
	w := get(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		f(r)
	}), route...))
	require.True(t, ran, "rejected: %d", w.Code)
}

func TestLeaseFrom(t *testing.T) {
	slots := concurrency(t, 2, 0)
	l := weir.Must(NewLimits(&LimitsOptions{
		Global:   Policy{Limit: Of(slots)},
		Policies: map[string]Policy{"a": {Limit: Of(yes()), Cost: func(*http.Request) int { return 7 }}, "shadow": {Limit: Of(no()), Shadow: true}},
	}))
	var kept context.Context
	within(t, l, func(r *http.Request) {
		kept = r.Context()
		assert.Same(t, r, RequestFrom(r.Context()))
		lease, ok := LeaseFrom(r.Context())
		assert.True(t, ok)
		assert.Equal(t, 7, lease.Permits())
		var policies []string
		for name, lease := range Leases(r.Context()) {
			policies = append(policies, name)
			if name == "global" {
				lease.Release() // earlier than the handler returns
				lease.Release()
			}
		}
		assert.Equal(t, []string{"a", "global"}, policies)
		assert.EqualValues(t, 2, slots.Statistics().AvailablePermits)
	}, "a", "shadow")
	assert.EqualValues(t, 2, slots.Statistics().AvailablePermits)
	assert.Contains(t, kept.(interface{ String() string }).String(), ".weirhttp")

	_, ok := LeaseFrom(kept)
	assert.False(t, ok, "the handler has returned")
	_, err := Charge(kept, 1, "a")
	assert.ErrorIs(t, err, ErrNotCharged)
	_, ok = LeaseFrom(t.Context())
	assert.False(t, ok)
	assert.Nil(t, RequestFrom(t.Context()))
	_, err = Charge(t.Context(), 1)
	assert.ErrorIs(t, err, ErrNotCharged)
}
