// Package logs has the outputs of the logs of a server, which hold up nothing, and the sampling of events.
package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

// maxBuffered is how many bytes of lines wait for the output: some 3000 lines.
const maxBuffered = 1 << 20

// A Writer writes to an output on a goroutine of its own, so that an output that blocks, such as a pipe that nothing
// reads, holds up nothing. Lines for which there is no room, or that cannot be written, are dropped, and counted in a line
// of their own when the output takes lines again. Make one with [NewWriter].
type Writer struct {
	to   io.Writer
	wake chan struct{} // has room for one: there are lines, or closing is set
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	buffer  []byte
	dropped int
	closing bool
}

// NewWriter returns a Writer. Close ends its goroutine.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write copies a whole line. It returns no error: a request does not fail because of the log.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	if len(w.buffer)+len(line) > maxBuffered || w.closing {
		w.dropped++
	} else {
		w.buffer = append(w.buffer, line...)
	}
	w.mu.Unlock()
	w.signal()
	return len(line), nil
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes what is in the buffer until the writer is closed.
func (w *Writer) run() {
	defer close(w.done)
	var spare []byte
	for range w.wake {
		w.mu.Lock()
		lines, dropped, closing := w.buffer, w.dropped, w.closing
		w.buffer, w.dropped = spare[:0], 0
		w.mu.Unlock()
		count := dropped + bytes.Count(lines, []byte("\n"))
		if dropped > 0 {
			lines = fmt.Appendf(lines, "{\"level\":\"WARN\",\"msg\":\"lines were dropped: the output was too slow, or failed\",\"dropped\":%d}\n", dropped)
		}
		if len(lines) > 0 {
			if _, err := w.to.Write(lines); err != nil {
				w.failed(count)
			}
		}
		if spare = lines; cap(spare) > maxBuffered/4 {
			spare = nil // a burst does not keep its memory
		}
		if closing {
			return
		}
	}
}

// failed counts lines as dropped. The output is the only place to tell it.
func (w *Writer) failed(lines int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropped += lines
}

// Close writes what is left. It waits for the output until ctx ends.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.signal()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the log: %w", ctx.Err())
	}
}
