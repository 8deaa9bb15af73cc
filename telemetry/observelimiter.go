package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
)

// statisticsTimeout bounds the wait of a collection for the statistics of limiters. All limiters are asked at once.
const statisticsTimeout = time.Second

// An observedLimiter is asked by one goroutine at a time, even if collections overlap.
type observedLimiter struct {
	limiter    limiter.StatisticsProvider
	statistics ask.Asker[limiter.Statistics]
}

// observeLimiters asks all limiters at once. The answers of the limiters beyond the limit are added up.
func observeLimiters(ctx context.Context, o observation, limiters *observed[*observedLimiter], limit int) {
	all := limiters.newest()
	ctx, cancel := context.WithTimeout(ctx, statisticsTimeout)
	defer cancel()
	questions := make([]*ask.Question[limiter.Statistics], len(all))
	for i, l := range all {
		questions[i] = l.object.ask()
	}
	var beyond limiter.Statistics
	overflows := false
	for i, q := range questions {
		s, ok := q.Wait(ctx)
		switch {
		case !ok:
		case i < limit:
			o.limiter(s, attribute.String(keyLimiter, all[i].name))
		default:
			overflows = true
			beyond.AvailablePermits = saturate.Add(beyond.AvailablePermits, s.AvailablePermits)
			beyond.QueuedPermits = saturate.Add(beyond.QueuedPermits, s.QueuedPermits)
		}
	}
	if overflows {
		o.limiter(beyond, attribute.Bool(keyOverflow, true))
	}
}

func (o observation) limiter(s limiter.Statistics, attributes attribute.KeyValue) {
	o.int(available, s.AvailablePermits, with(attributes))
	o.int(queued, s.QueuedPermits, with(attributes))
}

// ask calls Statistics, or joins the call that is running. A limiter of the program can panic in it, block, or end the
// goroutine.
func (o *observedLimiter) ask() *ask.Question[limiter.Statistics] {
	return o.statistics.Ask("telemetry: Statistics of an observed limiter", func() limiter.Statistics {
		asker, ok := o.limiter.(interface {
			StatisticsContext(ctx context.Context) limiter.Statistics
		})
		if !ok {
			return o.limiter.Statistics()
		}
		// A shared limiter whose store does not answer returns what it knows after this time, while the collection still
		// waits.
		ctx, cancel := context.WithTimeout(context.Background(), statisticsTimeout*3/4)
		defer cancel()
		return asker.StatisticsContext(ctx)
	})
}
