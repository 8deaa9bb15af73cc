package weir_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

func ExampleOptionsError() {
	_, err := limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 5})
	if options, ok := errors.AsType[*weir.OptionsError](err); ok {
		for _, field := range options.Fields {
			fmt.Printf("%s: %s\n", field.Path, field.Problem)
		}
	}
	// Output:
	// TokensPerPeriod: must be at least 1
	// ReplenishmentPeriod: must be more than 0
}

func ExampleMust() {
	logins := weir.Must(limiter.NewTokenBucket(limiter.PerMinute(5, 5)))
	fmt.Println(logins.Statistics().AvailablePermits)
	// Output: 5
}

func TestFieldError_Text(t *testing.T) {
	f := weir.FieldError{Path: "Window", Problem: "must be divisible by {Segments} and {Parts", Value: 3}
	require.EqualError(t, f, "Window must be divisible by Segments and {Parts, got 3")
	assert.Equal(t, "limits.window must be divisible by segments and {Parts, got 3", f.Text("limits.window", strings.ToLower))
}

func TestMust_Panics(t *testing.T) {
	assert.PanicsWithError(t, "boom", func() { weir.Must(1, errors.New("boom")) })
}
