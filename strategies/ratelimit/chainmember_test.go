package ratelimit_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func TestRejectedError_NamesTheMemberOfAChain(t *testing.T) {
	full := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	_, err := full.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	for want, l := range map[string]limiter.Limiter{
		"ratelimit: orders/RateLimiter: rejected by limiter slots of the chain: no permit free":                   weir.Must(weir.Must(limiter.Chain(full)).Named("slots")),
		"ratelimit: orders/RateLimiter: rejected by limiter 0 (limiter.Concurrency) of the chain: no permit free": weir.Must(limiter.Chain(full)),
	} {
		assert.EqualError(t, weir.Must(pipeline.New("orders", ratelimit.New(l, nil))).Execute(t.Context(), nothing), want)
	}
}
