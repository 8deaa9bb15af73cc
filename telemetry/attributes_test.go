package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/telemetry"
)

// A collector refuses a batch if one string is not UTF-8, and names can come from a request.
func TestAttributes_AreValidUTF8AndShort(t *testing.T) {
	bad := "a\xff\xfe" + strings.Repeat("é", 1<<20)
	alternating := strings.Repeat("a\xff", 500)
	var out bytes.Buffer
	provider, spans := recorder()
	l, reader := started(t, telemetry.Options{
		TracerProvider: provider,

		Logger: slog.New(slog.NewJSONHandler(&out, nil)),
		Enrich: func(_ context.Context, _ pipeline.Event, attrs []attribute.KeyValue) []attribute.KeyValue {
			return append(attrs, attribute.String("extra", bad), attribute.StringSlice("more", []string{"fine", bad}), attribute.Int("n", 1))
		},
	})
	defer l.ObserveLimiter(bad, permits(1))()
	shared, err := store.New(storetest.NewMemory(), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, shared.Close()) }()
	defer l.ObserveStore(bad, shared)()
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	for _, name := range []string{bad, "OnCircuitOpened", pipeline.EventPipelineExecuted, pipeline.EventExecutionAttempt} {
		for _, text := range []string{bad, alternating} {
			source := pipeline.Source{Pipeline: text, Instance: text, Strategy: text}
			l.Hooks().OnEvent(ctx, pipeline.Event{Name: name, Severity: pipeline.SeverityWarning, Operation: text, Source: source, Err: errors.New(text)})
		}
	}
	span.End()

	check := func(where, s string, most int) {
		assert.True(t, utf8.ValidString(s), where)
		assert.LessOrEqual(t, len(s), most, where)
	}
	seen := 0
	for name, m := range collect(t, reader) {
		for _, p := range m.points {
			for key, v := range p.attributes {
				switch v := v.(type) {
				case string:
					check(name+" "+key, v, 1024)
				case []string:
					check(name+" "+key, v[1], 1024)
					assert.Equal(t, "fine", v[0])
				}
				seen++
			}
		}
	}
	assert.Greater(t, seen, 50)
	require.NotEmpty(t, spans.Ended())
	for _, s := range spans.Ended() {
		check("span", s.Name(), 1100)
		check("status", s.Status().Description, 4096)
		attributes := s.Attributes()
		for _, e := range s.Events() {
			check("event", e.Name, 1024)
			attributes = append(attributes, e.Attributes...)
		}
		for _, a := range attributes {
			most := 1024
			if a.Key == "result" {
				most = 4096
			}
			if a.Value.Type() == attribute.STRING {
				check(string(a.Key), a.Value.AsString(), most)
			}
		}
	}
	assert.Contains(t, out.String(), "\"pipeline.name\":\"a\ufffdé")
	assert.Contains(t, out.String(), `é…","pipeline.instance"`)
}
