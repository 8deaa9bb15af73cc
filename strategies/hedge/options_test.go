package hedge_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/strategies/hedge"
)

func TestOptions_Defaults(t *testing.T) {
	assert.Equal(t, hedge.Options{Name: "Hedging", Delay: 2 * time.Second, MaxHedges: 1}, hedge.New(nil).Options())
	assert.Equal(t, "Hedging", hedge.New(nil).Name())
	for _, o := range []hedge.Options{
		{Name: "Twice", Delay: -1, MaxHedges: -1},
		{Name: "Twice", Delay: 5, MaxHedges: 10},
		{Name: "Twice", AtOnce: true, MaxHedges: 2},
	} {
		assert.Equal(t, o, hedge.New(&o).Options(), "New makes the same of them again")
		assert.NoError(t, hedge.New(&o).Validate())
	}
	options, state := hedge.New(nil).Describe()
	assert.Equal(t, hedge.New(nil).Options(), options)
	assert.Nil(t, state)
}

func TestOptions_Validate(t *testing.T) {
	assert.NoError(t, (*hedge.Options)(nil).Validate())
	bad := hedge.New(&hedge.Options{Delay: -2, AtOnce: true, MaxHedges: 11, DelayFunc: func(context.Context, int) time.Duration { return 0 }})
	assert.EqualError(t, bad.Validate(), "hedge: Delay must be at least 0, or -1 for none, got -2ns; "+
		"Delay must be left out with AtOnce, got -2ns; DelayFunc must be nil with AtOnce; "+
		"MaxHedges must be from 0 to 10, or -1 for none, got 11")
}
