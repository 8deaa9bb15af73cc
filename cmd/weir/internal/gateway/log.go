package gateway

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"
)

// eventsPerSecond is how many lines about events of one name are written in a second. Rejections, retries and timeouts
// come with requests, and the metrics and the access log have all of them.
const eventsPerSecond = 5

// A sampler is the handler of the log of events. It drops lines of which there were too many in this second.
type sampler struct {
	slog.Handler
	perEvent *limiter.PartitionedLimiter[string, string] // by the name of the event
}

func newSampler(h slog.Handler) (*sampler, error) {
	perEvent, err := weirhttp.PerKey(limiter.FixedWindowFactory[string](limiter.FixedWindowOptions{
		PermitLimit: eventsPerSecond, Window: time.Second,
	}), nil)
	return &sampler{h, perEvent}, err
}

// Handle implements [slog.Handler].
func (s *sampler) Handle(ctx context.Context, r slog.Record) error {
	event := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event.name" {
			event = a.Value.String()
		}
		return event == ""
	})
	switch event {
	case pipeline.EventPipelineExecuted, pipeline.EventExecutionAttempt:
		return nil // each request has them; metrics and the access log say what became of it
	case "":
	default:
		if lease, err := s.perEvent.TryAcquire(ctx, event, 1); err == nil && !lease.Acquired() {
			return nil
		}
	}
	return s.Handler.Handle(ctx, r)
}

// A lockedWriter is an output of several logs.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
