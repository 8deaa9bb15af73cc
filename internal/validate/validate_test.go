package validate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
)

func TestProblems(t *testing.T) {
	var none validate.Problems
	none.AtLeast("Limit", 1, 1)
	none.Positive("Period", 1)
	none.NotNegative("Delay", 0)
	none.Include("Inner", nil)
	require.NoError(t, none.Err("limiter"))

	cause := errors.New("no such {policy}")
	var inner, outer validate.Problems
	inner.AtLeast("Limit", 0, 1)
	inner.Add("", nil, "Limit and Rate exclude each other")
	outer.Positive("Period", -time.Second)
	outer.NotNegative("Delay", -1)
	outer.Add("Name", "a b", "must have no spaces")
	outer.Add("Window", time.Second, "must be divisible by {Segments}, which is %d", 7)
	outer.Include("Policies[login]", inner.Err("inner"))
	outer.Include("Fallback", cause)
	err := outer.Err("limiter")
	require.EqualError(t, err, "limiter: Period must be more than 0, got -1s; Delay must be at least 0, got -1ns; "+
		`Name must have no spaces, got "a b"; Window must be divisible by Segments, which is 7, got 1s; `+
		"Policies[login].Limit must be at least 1, got 0; Policies[login] Limit and Rate exclude each other; "+
		"Fallback is invalid: no such {policy}")
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	require.ErrorIs(t, err, cause)
	options, ok := errors.AsType[*weir.OptionsError](err)
	require.True(t, ok)
	assert.Equal(t, "Policies[login].Limit", options.Fields[4].Path)
}

func TestJoin(t *testing.T) {
	assert.Equal(t, "a.b", validate.Join("a", "b"))
	assert.Equal(t, "a[1].b", validate.Join("a", "[1].b"))
	assert.Equal(t, "b", validate.Join("", "b"))
	assert.Equal(t, "a", validate.Join("a", ""))
}
