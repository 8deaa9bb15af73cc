// Package logs has the outputs of the logs of a server, which hold up nothing, and the sampling of events.
package logs

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

// A Sampler is the handler of the log of events. It drops lines of which there were too many in this second. Make one with
// [NewSampler].
type Sampler struct {
	slog.Handler
	perEvent *limiter.PartitionedLimiter[string, string] // by the name of the event
}

// NewSampler returns a Sampler before h.
func NewSampler(h slog.Handler) (*Sampler, error) {
	perEvent, err := weirhttp.PerKey(limiter.FactoryFor[string](limiter.FixedWindowOptions{
		PermitLimit: eventsPerSecond, Window: time.Second,
	}), nil)
	return &Sampler{h, perEvent}, err
}

// Handle implements [slog.Handler].
func (s *Sampler) Handle(ctx context.Context, r slog.Record) error {
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

// Close releases what the Sampler holds.
func (s *Sampler) Close() { _ = s.perEvent.Close() }

// Locked returns an output that several logs can have.
func Locked(to io.Writer) io.Writer { return &lockedWriter{to: to} }

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
