package fileconfig

import (
	"math"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/reload"
)

// Members calls do with what the file says about the limiter and, if it is a chain, about those in it.
func Members(f *reload.File, name string, do func(reload.LimiterInfo)) {
	seen := make(map[string]bool)
	var visit func(name string)
	visit = func(name string) {
		info, ok := f.Limiter(name)
		if !ok || seen[name] {
			return
		}
		seen[name] = true
		do(info)
		for _, m := range info.Members {
			visit(m)
		}
	}
	visit(name)
}

// Adapting returns the kind of the limiter, or of one in its chain, that learns from the outcomes of requests.
func Adapting(f *reload.File, name string) (kind string) {
	Members(f, name, func(info reload.LimiterInfo) {
		if info.Kind == "adaptive" || info.Kind == "throttler" {
			kind = info.Kind
		}
	})
	return kind
}

// QuotaOf returns the quota that the options of a limiter are.
func QuotaOf(options any) (quota int64, window time.Duration) {
	switch o := options.(type) {
	case limiter.FixedWindowOptions:
		return int64(o.PermitLimit), o.Window
	case limiter.SlidingWindowOptions:
		return int64(o.PermitLimit), o.Window
	case limiter.ConcurrencyOptions:
		return int64(o.PermitLimit), 0
	case limiter.TokenBucketOptions:
		if o.TokensPerPeriod < 1 {
			return 0, 0 // Parse refuses it
		}
		periods := (o.TokenLimit-1)/o.TokensPerPeriod + 1 // until an empty bucket is full
		if o.ReplenishmentPeriod > math.MaxInt64/time.Duration(periods) {
			return int64(o.TokenLimit), math.MaxInt64
		}
		return int64(o.TokenLimit), time.Duration(periods) * o.ReplenishmentPeriod
	default:
		return 0, 0
	}
}
