package weirtest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/weirtest"
)

var _ pipeline.Listener = (*weirtest.Recorder)(nil)

func TestRecorder(t *testing.T) {
	var r weirtest.Recorder
	assert.Empty(t, r.Names())
	p := weir.Must(pipeline.Config{
		Strategies: []pipeline.Strategy{ratelimit.New(weirtest.NewLimiter(weirtest.Grant().After(time.Millisecond)), nil)},
		Listener:   &r,
	}.Build())
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }))

	assert.Equal(t, []string{pipeline.EventPipelineExecuting, pipeline.EventPipelineExecuted}, r.Names())
	assert.Len(t, r.Events(pipeline.EventPipelineExecuted, "other"), 1)
	assert.Len(t, r.Measurements(), 2)
	assert.Equal(t, 1, r.Count(ratelimit.MeasureLease))
	assert.GreaterOrEqual(t, r.Measurements(ratelimit.MeasureRequest)[0].Duration, time.Millisecond)
	r.Events()[0].Name = "changed"
	assert.Zero(t, r.Count("changed"), "the events that it returns are copies")

	r.Reset()
	assert.Empty(t, r.Events())
	assert.Empty(t, r.Measurements())
}

func TestRecorder_ConcurrentSafe(t *testing.T) {
	var r weirtest.Recorder
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				r.Hooks().OnEvent(t.Context(), pipeline.Event{Name: "event"})
				r.Hooks().OnMeasurement(t.Context(), pipeline.Event{Name: "measurement"})
				r.Count("event")
			}
		})
	}
	group.Wait()
	assert.Equal(t, 800, r.Count("event"))
	assert.Equal(t, 800, r.Count("measurement"))
}
