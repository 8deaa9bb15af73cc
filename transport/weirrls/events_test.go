package weirrls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A recorder keeps what it is told, and begins and ends measurements.
type recorder struct {
	mu       sync.Mutex
	events   []pipeline.Event
	measured []pipeline.Event
	held     int
	disabled bool
}

func (r *recorder) Enabled(context.Context) bool { return !r.disabled }

func (r *recorder) OnEvent(_ context.Context, e pipeline.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) OnMeasurement(_ context.Context, e pipeline.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured = append(r.measured, e)
}

func (r *recorder) Hooks() pipeline.Hooks {
	return pipeline.Hooks{OnEvent: r.OnEvent, Enabled: r.Enabled, OnMeasurement: func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
		r.OnMeasurement(ctx, e)
		if e.Err != nil {
			return nil
		}
		r.held++
		return func(ctx context.Context, e pipeline.Event) {
			r.OnMeasurement(ctx, e)
			r.held--
		}
	}}
}

// lines returns the events as text, and forgets them.
func (r *recorder) lines() (list []string) {
	for _, e := range r.events {
		list = append(list, fmt.Sprintf("%s %s %s", e.Severity, e.Name, e.Source))
	}
	r.events = nil
	return list
}

func TestEvents(t *testing.T) {
	listener := &recorder{}
	broken := newPot(5)
	broken.failure = errors.New("boom")
	s := newService(t, &ServiceOptions{Listener: listener},
		Descriptor{Key: "all", Limit: &Limit{Limiter: newPot(1)}},
		Descriptor{Key: "w", Descriptors: []Descriptor{{Key: "path", Value: "/a*", Limit: windowOf(1, Year)}}},
		Descriptor{Key: "shadow", Limit: &Limit{Name: "trial", Limiter: newPot(0), Shadow: true}},
		Descriptor{Key: "quota", Limit: &Limit{Name: "quota", Limiter: newPot(0), Quota: true}},
		Descriptor{Key: "broken", Limit: &Limit{Limiter: broken}},
		Descriptor{Key: "broken_open", Limit: &Limit{Limiter: broken, FailOpen: true}},
		Descriptor{Key: "broken_shadow", Limit: &Limit{Limiter: broken, Shadow: true}},
		Descriptor{Key: "custom", Limit: &Limit{Limiter: rejecting(0)}},
	)
	ask(t, s, describe("all", ""), describe("w", "", "path", "/a1"), describe("none", ""), overriding(1, 6, describe("o", "")))
	assert.Empty(t, listener.lines())
	require.Len(t, listener.measured, 6)
	assert.Equal(t, pipeline.Event{Name: ratelimit.MeasureLease, Source: pipeline.Source{Pipeline: "edge", Strategy: "all"}}, listener.measured[1])
	assert.Zero(t, listener.held)

	for _, tt := range []struct {
		want string
		key  string
	}{
		{"Error OnRateLimiterRejected edge/all", "all"},
		{"Warning OnRateLimiterShadowRejected edge/trial", "shadow"},
		{"Error OnRateLimiterFailed edge/broken", "broken"},
		{"Warning OnRateLimiterFailedOpen edge/broken_open", "broken_open"},
		{"Warning OnRateLimiterShadowError edge/broken_shadow", "broken_shadow"},
		{"Error OnRateLimiterRejected edge/quota", "quota"},
	} {
		ask(t, s, describe(tt.key, ""))
		assert.Equal(t, []string{tt.want}, listener.lines())
	}
	ask(t, s, describe("w", "", "path", "/a1"))
	ask(t, s, overriding(1, 6, describe("o", "")))
	ask(t, s, giveBack(1, describe("custom", "")))
	err := listener.events[0].Err
	require.ErrorIs(t, err, pipeline.ErrRejected)
	require.ErrorIs(t, listener.events[2].Err, errors.ErrUnsupported)
	assert.Equal(t, []string{
		"Warning OnRateLimiterRejected edge/w.path_/a*", "Warning OnRateLimiterRejected edge/override", "Warning OnRateLimiterFailedOpen edge/custom",
	}, listener.lines())

	s.options.Shadow = true
	ask(t, s, describe("all", ""))
	assert.Equal(t, []string{"Warning OnRateLimiterShadowRejected edge/all"}, listener.lines())
	listener.disabled, listener.measured = true, nil
	ask(t, s, describe("all", ""))
	assert.Empty(t, listener.lines())
	assert.Empty(t, listener.measured)
}

func TestEvents_NamesWithValues(t *testing.T) {
	listener := &recorder{}
	limit := func() *Limit { return &Limit{Name: "named", Limiter: newPot(0)} }
	s := newService(t, &ServiceOptions{Listener: listener},
		Descriptor{Key: "d", Descriptors: []Descriptor{{Key: "path", Value: "/a*", DetailedMetric: true, Limit: limit()}}},
		Descriptor{Key: "v", ValueToMetric: true, Descriptors: []Descriptor{
			{Key: "path", Value: "/a*", Limit: limit()}, {Key: "path", Value: "/x", Limit: limit()},
			{Key: "path", Value: "/s*", ShareThreshold: true, ValueToMetric: true, Limit: limit()}, {Key: "path", Limit: limit()},
		}},
	)
	for want, d := range map[string][]string{
		"d_1.path_/a2": {"d", "1", "path", "/a2"}, "v_1.path_/a*": {"v", "1", "path", "/a2"}, "v_1.path_/x": {"v", "1", "path", "/x"},
		"v_1.path_/s*": {"v", "1", "path", "/s2"}, "v_1.path": {"v", "1", "path", "/other"}, "v.path": {"v", strings.Repeat("x", 300), "path", "o"},
	} {
		ask(t, s, describe(d...))
		assert.Equal(t, []string{"Error OnRateLimiterRejected edge/" + want}, listener.lines())
	}
}

func TestEvents_BoundedNames(t *testing.T) {
	listener := &recorder{}
	s := newService(t, &ServiceOptions{Listener: listener}, Descriptor{Key: "v", ValueToMetric: true, Limit: &Limit{Limiter: newPot(0)}})
	for i := range 3 * maxValueNames {
		ask(t, s, describe("v", fmt.Sprint(i)))
	}
	names := make(map[string]bool)
	for _, e := range listener.events {
		names[e.Source.Strategy] = true
	}
	assert.Len(t, names, maxValueNames+1)
	assert.True(t, names["v"])
	listener.events = nil
	ask(t, s, describe("v", "1"))
	assert.Equal(t, []string{"Error OnRateLimiterRejected edge/v_1"}, listener.lines(), "a known name is kept")
}

func TestEvents_ListenerPanics(t *testing.T) {
	s := newService(t, &ServiceOptions{Listener: pipeline.ListenerFunc(func(context.Context, pipeline.Event) { panic("listener") })},
		potRule("a", newPot(0)), potRule("b", newPot(5)))
	assert.Equal(t, codeList{isOver, isOver, isOK}, codesOf(ask(t, s, describe("a", ""), describe("b", ""))))
	s = newService(t, &ServiceOptions{Listener: pipeline.ListenerFunc(nil)}, potRule("a", newPot(0)))
	assert.Equal(t, isOver, ask(t, s, describe("a", "")).OverallCode)
}

// TestEvents_Rejection: the error has the limiter's answer, for listeners that want more than a text.
func TestEvents_Rejection(t *testing.T) {
	listener := &recorder{}
	s := newService(t, &ServiceOptions{Listener: listener}, potRule("k", newPot(5)), Descriptor{Key: "w", Limit: windowOf(0, Day)})
	ask(t, s, withHits(6, describe("k", "")))
	ask(t, s, describe("w", ""))
	var reasons []string
	for _, e := range listener.events {
		rejection, ok := errors.AsType[*ratelimit.RejectedError](e.Err)
		require.True(t, ok)
		reasons = append(reasons, rejection.Reason)
	}
	assert.Equal(t, []string{reasonTooMany, ""}, reasons)
	last, _ := errors.AsType[*ratelimit.RejectedError](listener.events[1].Err)
	after, ok := last.RetryAfter()
	assert.True(t, ok && after > 0)
	assert.True(t, slices.ContainsFunc(listener.measured, func(e pipeline.Event) bool { return e.Err != nil }))
}
