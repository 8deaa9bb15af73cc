package telemetry

import (
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/pipeline"
)

// The names of attributes. Log lines use the same.
const (
	keyEvent     = "event.name"
	keySeverity  = "event.severity"
	keyPipeline  = "pipeline.name"
	keyInstance  = "pipeline.instance"
	keyStrategy  = "strategy.name"
	keyOperation = "operation.key"
	keyErrorType = "error.type"
	keyAttempt   = "attempt.number"
	keyHandled   = "attempt.handled"
	keyResult    = "result"
	keyState     = "state"
	keyDuration  = "duration"
	keyStore     = "store.name"
	keyShard     = "store.shard"
	keyDecidedBy = "decided_by"
	keyLimiter   = "limiter.name"
	keyOverflow  = "otel.metric.overflow"
	keyMethod    = "http.request.method"
	keyScheme    = "url.scheme"
	keyRoute     = "http.route"
	keyStatus    = "http.response.status_code"
)

// appendString appends an attribute, unless the value is empty.
func appendString(attrs []attribute.KeyValue, key attribute.Key, value string) []attribute.KeyValue {
	if value == "" {
		return attrs
	}
	return append(attrs, key.String(value))
}

// appendSource appends the names of s that are not empty.
func appendSource(attrs []attribute.KeyValue, s pipeline.Source) []attribute.KeyValue {
	attrs = appendString(attrs, keyPipeline, s.Pipeline)
	attrs = appendString(attrs, keyInstance, s.Instance)
	return appendString(attrs, keyStrategy, s.Strategy)
}

// appendAttempt appends the attributes that only an attempt has.
func appendAttempt(attrs []attribute.KeyValue, number int, handled bool) []attribute.KeyValue {
	return append(attrs, attribute.Int(keyAttempt, number), attribute.Bool(keyHandled, handled))
}

// The bounds of exported strings, in bytes.
const (
	maxValue = 1 << 10 // of an attribute
	maxText  = 4 << 10 // of the text of an error on a span
)

// sendable returns s as valid UTF-8 of at most maxBytes bytes. A single string that is not UTF-8 makes a collector
// refuse the whole batch. A longer string is cut, and ends in "…".
func sendable(s string, maxBytes int) string {
	if len(s) <= maxBytes && utf8.ValidString(s) {
		return s
	}
	whole := len(s) <= maxBytes
	s = strings.ToValidUTF8(s[:min(len(s), maxBytes)], "\uFFFD") // a replaced byte becomes three
	if whole && len(s) <= maxBytes {
		return s
	}
	end := min(len(s), maxBytes-len("…"))
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// withSendable replaces the strings in attrs by sendable ones, in place.
func withSendable(attrs []attribute.KeyValue) []attribute.KeyValue {
	for i, a := range attrs {
		switch a.Value.Type() {
		case attribute.STRING:
			attrs[i] = a.Key.String(sendable(a.Value.AsString(), maxValue))
		case attribute.STRINGSLICE:
			all := a.Value.AsStringSlice()
			for n, s := range all {
				all[n] = sendable(s, maxValue)
			}
			attrs[i] = a.Key.StringSlice(all)
		}
	}
	return attrs
}

// An occurrence is an event with what metrics, spans and log lines add to it.
type occurrence struct {
	pipeline.Event                      // its Severity is the one that SeverityFunc returned
	ownSeverity    pipeline.Severity    // the severity that the event had
	errorType      string               // "" for success
	extra          []attribute.KeyValue // the attributes of Enrich
}

// described is a result that log lines and span events show by these attributes, because it is not that of an execution:
// the Override of package registry.
type described interface{ EventAttributes() []slog.Attr }

// attributes returns the attributes that the log line and the span event have in common: all but the result.
func (o *occurrence) attributes() []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, len(o.extra)+10)
	attrs = append(attrs, attribute.String(keyEvent, o.Name), attribute.String(keySeverity, o.Severity.String()))
	attrs = appendSource(attrs, o.Source)
	attrs = appendString(attrs, keyOperation, o.Operation)
	attrs = appendString(attrs, keyErrorType, o.errorType)
	if o.Name == pipeline.EventExecutionAttempt {
		attrs = appendAttempt(attrs, o.Attempt, o.Handled)
	}
	if d, ok := o.Result.(described); ok {
		for _, a := range d.EventAttributes() {
			attrs = append(attrs, attribute.String(a.Key, a.Value.String()))
		}
	}
	for _, a := range o.extra {
		if !slices.ContainsFunc(attrs, func(own attribute.KeyValue) bool { return own.Key == a.Key }) {
			attrs = append(attrs, a)
		}
	}
	return withSendable(attrs)
}
