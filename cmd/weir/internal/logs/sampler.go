// Package logs has the outputs of the logs of a server, which hold up nothing, and the sampling of events.
package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// eventsPerSecond is how many lines about events of one name are written in a second. Rejections, retries and timeouts
// come with requests, and the metrics and the access log have all of them.
const eventsPerSecond = 5

// A Sampler is the handler of the log of events. It drops lines of which there were too many in this second. Make one with
// [NewSampler].
type Sampler struct {
	slog.Handler

	mu      sync.Mutex
	second  int64
	written map[string]int // in this second, by the name of the event
}

// NewSampler returns a Sampler before h.
func NewSampler(h slog.Handler) *Sampler { return &Sampler{Handler: h, written: make(map[string]int)} }

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
	}
	if event != "" && !s.take(event) {
		return nil
	}
	return s.Handler.Handle(ctx, r)
}

// take reports whether there is room for a line about an event.
func (s *Sampler) take(event string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now().Unix(); now != s.second {
		s.second = now
		clear(s.written)
	}
	s.written[event]++
	return s.written[event] <= eventsPerSecond
}
