package process

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A guesser tries passwords, and counts how many were looked at.
type guesser struct {
	*logins
	ctx    context.Context
	looked atomic.Int64
}

func withLogins(t *testing.T, f func(t *testing.T, g *guesser)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &guesser{logins: newLogins(), ctx: t.Context()}
		defer g.close()
		f(t, g)
	})
}

func (g *guesser) guess(address, user string, right bool) (ok bool, wait time.Duration) {
	return g.try(g.ctx, address, user, func() bool { g.looked.Add(1); return right })
}

func TestLogins_OneAddress(t *testing.T) {
	withLogins(t, func(t *testing.T, g *guesser) {
		for i := range 1000 {
			ok, wait := g.guess("a", fmt.Sprint("user", i), false)
			require.False(t, ok)
			require.Equal(t, i >= wrongOfOne, wait > 0)
		}
		assert.EqualValues(t, wrongOfOne, g.looked.Load())
		ok, wait := g.guess("a", "eve", true)
		assert.False(t, ok, "a right guess beyond the limit tells nothing")
		assert.Equal(t, periodOfOne, wait)
		ok, _ = g.guess("b", "ann", true)
		assert.True(t, ok, "another address")

		time.Sleep(periodOfOne)
		ok, _ = g.guess("a", "ann", true)
		assert.True(t, ok)
		g.looked.Store(0)
		for range 24 * 60 {
			time.Sleep(time.Minute)
			for range 10 {
				g.guess("a", "eve", false)
			}
		}
		assert.LessOrEqual(t, g.looked.Load(), int64(24*time.Hour/periodOfOne)+wrongOfOne, "guesses in a day")
	})
}

// Right passwords cost nothing, however many there are.
func TestLogins_Right(t *testing.T) {
	withLogins(t, func(t *testing.T, g *guesser) {
		for i := range 1000 {
			ok, wait := g.guess("a", fmt.Sprint("user", i%200), true)
			require.True(t, ok)
			require.Zero(t, wait)
		}
		assert.Len(t, g.known, knownLogins)
		for i := range wrongOfOne + 1 {
			_, wait := g.guess("a", "eve", false)
			assert.Equal(t, i == wrongOfOne, wait > 0)
		}
	})
}

func TestLogins_AllAddresses(t *testing.T) {
	withLogins(t, func(t *testing.T, g *guesser) {
		for i := range 10_000 {
			g.guess(fmt.Sprint(i), "eve", false)
		}
		assert.EqualValues(t, wrongOfAll, g.looked.Load())
		assert.LessOrEqual(t, g.each.Len(), wrongOfAll, "what is rejected takes no memory")
		ok, wait := g.guess("new", "ann", true)
		assert.False(t, ok)
		assert.Equal(t, periodOfAll, wait)
		time.Sleep(periodOfAll)
		ok, _ = g.guess("new", "ann", true)
		assert.True(t, ok)
	})
}

// A user who was let in lately is not kept out by guesses under other names or at other addresses.
func TestLogins_Known(t *testing.T) {
	withLogins(t, func(t *testing.T, g *guesser) {
		ok, _ := g.guess("a", "ann", true)
		require.True(t, ok)
		flood := func() {
			for i := range 1000 {
				g.guess("a", fmt.Sprint("user", i), false)
				g.guess(fmt.Sprint(i), "ann", false)
			}
		}
		flood()
		ok, _ = g.guess("a", "ann", true)
		assert.True(t, ok)
		ok, _ = g.guess("a", "bob", true)
		assert.False(t, ok)
		g.looked.Store(0)
		for range 100 {
			g.guess("a", "ann", false)
		}
		assert.EqualValues(t, wrongOfOne, g.looked.Load(), "the wrong passwords of a known user are bounded, too")
		time.Sleep(knownTime)
		flood()
		ok, _ = g.guess("a", "ann", true)
		assert.False(t, ok, "known for a day")
	})
}

// Guesses at the same time are as few as others.
func TestLogins_Concurrent(t *testing.T) {
	g := &guesser{logins: newLogins(), ctx: t.Context()}
	defer g.close()
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for j := range 100 {
				g.guess(fmt.Sprint(j%20), fmt.Sprint("user", i), i == 0 && j%7 == 0)
			}
		})
	}
	all.Wait()
	assert.LessOrEqual(t, g.looked.Load(), int64(wrongOfAll+20*wrongOfOne+100+1))
}

func TestLogins_EndedContext(t *testing.T) {
	withLogins(t, func(t *testing.T, g *guesser) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g.ctx = ctx
		ok, wait := g.guess("a", "ann", true)
		assert.False(t, ok)
		assert.Equal(t, time.Second, wait)
		assert.Zero(t, g.looked.Load())
	})
}
