package weirrls

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

func TestNewRules_Problems(t *testing.T) {
	bucket := weir.Must(limiter.NewTokenBucket(limiter.PerSecond(1, 1)))
	t.Cleanup(func() { _ = bucket.Close() })
	slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	t.Cleanup(func() { _ = slots.Close() })
	window := &Window{RequestsPerUnit: 1, Unit: Second}
	for want, l := range map[string]*Limit{
		"Limit must have one of Limiter, Partitioned, Window and Unlimited":                {},
		"Limit must have only one of Limiter, Partitioned, Window and Unlimited":           {Limiter: bucket, Window: window},
		"Limit.Limiter must not be a nil pointer":                                          {Limiter: (*limiter.TokenBucket)(nil)},
		"Limit.Window.Unit must be one of second, minute, hour, day, week, month and ye":   {Window: &Window{RequestsPerUnit: 1}},
		"Limit.Replaces[1] must be set":                                                    {Unlimited: true, Replaces: []string{"a", ""}},
		"Limit.Replaces[0] must not be the Name of the limit itself, got \"a\"":            {Unlimited: true, Name: "a", Replaces: []string{"a"}},
		"Limit.OnOverrun must not be set without Limiter or Partitioned":                   {Window: window, OnOverrun: OverrunDebt},
		"Limit must not have a concurrency limiter, because the protocol does not release": {Limiter: slots},
		"Limit.OnOverrun must not be set for a limiter that is not a limiter.Charger":      {Limiter: unchargeable{}, OnOverrun: OverrunRest},
		"Limit.OnOverrun must be OverrunNothing, OverrunDebt or OverrunRest":               {Limiter: newPot(1), OnOverrun: 3},
		"Limit.Name must be valid UTF-8":                                                   {Unlimited: true, Name: "\xff"},
	} {
		_, err := NewRules(Domain{Name: "edge", Descriptors: []Descriptor{{Key: "a", Descriptors: []Descriptor{{Key: "b", Limit: l}}}}})
		require.ErrorIs(t, err, weir.ErrInvalidOptions)
		assert.ErrorContains(t, err, "Domains[0].Descriptors[0].Descriptors[0]."+want)
	}
	_, err := NewRules(
		Domain{Name: "edge", Descriptors: []Descriptor{
			{}, {Key: "a_b"}, {Key: "a", Value: "b"}, {Key: "a", ShareThreshold: true}, {Key: "m", Metadata: map[string]any{"a": make(chan int)}},
			{Key: "\xff"}, {Key: "v", Value: "\xff"},
		}},
		Domain{Name: "edge"}, Domain{}, Domain{Name: strings.Repeat("x", 2000)},
	)
	options, ok := errors.AsType[*weir.OptionsError](err)
	require.True(t, ok)
	var paths []string
	for _, f := range options.Fields {
		paths = append(paths, f.Path)
	}
	assert.Equal(t, []string{
		"Domains[0].Descriptors[0].Key", "Domains[0].Descriptors[2]", "Domains[0].Descriptors[3].ShareThreshold",
		"Domains[0].Descriptors[4].Metadata", "Domains[0].Descriptors[5].Key", "Domains[0].Descriptors[6].Value",
		"Domains[1].Name", "Domains[2].Name", "Domains[3].Name",
	}, paths)
}

// unchargeable is a limiter that has no Charge.
type unchargeable struct{ limiter.Limiter }

func TestNewRules_KeepsNoOptions(t *testing.T) {
	window := &Window{RequestsPerUnit: 1, Unit: Day}
	s := newService(t, nil, Descriptor{Key: "k", Limit: &Limit{Window: window}})
	window.RequestsPerUnit = 0
	assert.Equal(t, codeList{isOK, isOK}, codesOf(ask(t, s, describe("k", ""))))
}

func TestTextForms(t *testing.T) {
	var u Unit
	require.NoError(t, u.UnmarshalText([]byte("MINUTE")))
	assert.Equal(t, Minute, u)
	assert.Equal(t, "Unit(0) week Unit(9)", strings.Join([]string{Unit(0).String(), Week.String(), Unit(9).String()}, " "))
	require.ErrorIs(t, u.UnmarshalText([]byte("fortnight")), weir.ErrInvalidOptions)
	var o Overrun
	require.NoError(t, o.UnmarshalText([]byte("debt")))
	assert.Equal(t, OverrunDebt, o)
	text, err := OverrunRest.MarshalText()
	require.NoError(t, err)
	assert.Equal(t, "rest", string(text))
}

func TestPerKey(t *testing.T) {
	_, err := PerKey(nil, nil)
	require.EqualError(t, err, "weirrls: factory must not be nil")
	p := weir.Must(PerKey(limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}),
		&limiter.PartitionedOptions{MaxPartitions: 1}))
	t.Cleanup(func() { _ = p.Close() })
	s := newService(t, nil, Descriptor{Key: "k", Limit: &Limit{Partitioned: p, FailOpen: true}})
	assert.Equal(t, isOK, ask(t, s, describe("k", "a")).OverallCode)
	assert.Equal(t, isOver, ask(t, s, describe("k", "a")).OverallCode)
	assert.Equal(t, isOver, ask(t, s, describe("k", "b")).OverallCode, "too many keys are no failure to decide")
}
