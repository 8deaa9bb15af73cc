package weirtest

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-go/weir/pipeline"
)

// A Recorder is a listener of pipelines that records all events and measurements in the order in which they come. It is
// the Listener of a [pipeline.Config] or a registry, alone or among [pipeline.Listeners]. It is safe for concurrent use.
//
// The zero value is ready and has recorded nothing. A Recorder must not be copied after first use.
type Recorder struct {
	mu           sync.Mutex
	events       []pipeline.Event
	measurements []pipeline.Event
}

// Hooks implements [pipeline.Listener].
func (r *Recorder) Hooks() pipeline.Hooks {
	return pipeline.Hooks{OnEvent: r.event, OnMeasurement: r.measurement}
}

func (r *Recorder) event(_ context.Context, e pipeline.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *Recorder) ended(ctx context.Context, e pipeline.Event) { r.measurement(ctx, e) }

func (r *Recorder) measurement(_ context.Context, e pipeline.Event) (ended func(context.Context, pipeline.Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measurements = append(r.measurements, e)
	return r.ended
}

// Events returns the events with one of the names, or all events if there are no names.
func (r *Recorder) Events(names ...string) []pipeline.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return named(r.events, names)
}

// Measurements returns the measurements with one of the names, or all measurements if there are no names.
func (r *Recorder) Measurements(names ...string) []pipeline.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return named(r.measurements, names)
}

// named returns a copy of all with those events only that have one of the names.
func named(all []pipeline.Event, names []string) []pipeline.Event {
	return slices.DeleteFunc(slices.Clone(all), func(e pipeline.Event) bool {
		return len(names) > 0 && !slices.Contains(names, e.Name)
	})
}

// Names returns the names of all events, but not of the measurements.
func (r *Recorder) Names() []string {
	var names []string
	for _, e := range r.Events() {
		names = append(names, e.Name)
	}
	return names
}

// Count returns how many events and measurements have that name.
func (r *Recorder) Count(name string) int {
	return len(r.Events(name)) + len(r.Measurements(name))
}

// Reset forgets what has been recorded, for the next phase of a test.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.measurements = nil, nil
}
