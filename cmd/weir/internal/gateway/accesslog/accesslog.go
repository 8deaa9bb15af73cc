// Package accesslog writes a line of JSON for each request of the gateway.
package accesslog

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/logs"
)

// Options are what a [Log] writes.
type Options struct {
	Query bool // the query of the URL, which can have secrets
	// Key returns how the key of a limiter is written: a hash of it, unless keys are not secret.
	Key func(key string) string
}

// A Log is an access log. It is safe for concurrent use.
type Log struct {
	options Options
	handler slog.Handler
}

// New returns a Log. Several can have the same Writer.
func New(w *logs.Writer, o Options) *Log {
	return &Log{options: o, handler: slog.NewJSONHandler(w, nil)}
}

// An Entry is what is known of a request when it has ended.
type Entry struct {
	Began   time.Time
	Took    time.Duration
	Request *http.Request
	Client  string // the address of the client
	Status  int    // 0: the connection broke before the answer began
	Sent    int64  // bytes of the body of the answer
	Aborted bool   // the answer broke off
	Fault   error  // why the gateway answered and not the upstream; nil: it did not

	Route, Upstream, Address string // "": none
	Attempts                 int
	Policy, Decision         string
	Waited                   time.Duration // in the queues of limiters
	Key                      string        // of the limiter of Policy
}

// maxText is how many bytes of a text are written. A path can have as many as all of the header.
const maxText = 1024

// Write writes a line. It leaves out what is not known.
func (l *Log) Write(e *Entry) {
	r := e.Request
	record := slog.NewRecord(e.Began, slog.LevelInfo, "request", 0)
	attrs := make([]slog.Attr, 0, 24)
	text := func(name, value string) {
		if len(value) > maxText {
			value = value[:maxText] + "…"
		}
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	text("client", e.Client)
	text("method", r.Method)
	text("host", r.Host)
	text("path", r.URL.Path)
	if l.options.Query {
		text("query", r.URL.RawQuery)
	}
	text("protocol", r.Proto)
	text("route", e.Route)
	attrs = append(attrs,
		slog.Int("status", e.Status),
		slog.Float64("seconds", seconds(e.Took)),
		slog.Int64("bytes", e.Sent))
	text("upstream", e.Upstream)
	text("address", e.Address)
	if e.Attempts > 0 {
		attrs = append(attrs, slog.Int("attempts", e.Attempts))
	}
	text("policy", e.Policy)
	text("decision", e.Decision)
	if e.Waited >= time.Millisecond {
		attrs = append(attrs, slog.Float64("waited", seconds(e.Waited)))
	}
	if e.Key != "" {
		text("key", l.options.Key(e.Key))
	}
	if e.Aborted {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	if e.Fault != nil {
		text("error", e.Fault.Error())
	}
	record.AddAttrs(attrs...)
	_ = l.handler.Handle(context.Background(), record) // Writer.Write does not fail
}

// seconds returns d in seconds, to the microsecond.
func seconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1e6
}
