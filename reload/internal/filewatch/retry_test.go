package filewatch_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/reload/internal/filewatch"
)

// What is not permanent is tried again, and reported when it
// becomes another failure.
func TestTransientFailureIsRetried(t *testing.T) {
	watching(t, oldContent, nil, func(t *testing.T, k *keeper) {
		k.failWith(errBoom)
		write(t, k.path, newContent)
		k.until(time.Minute)
		seconds := func(s ...float64) (all []time.Duration) {
			for _, s := range s {
				all = append(all, time.Duration(s*float64(time.Second)))
			}
			return all
		}
		// The poll at 2.2 s reads again at 2.4 s; from there on polls are at even numbers and 0.4.
		assert.Equal(t, seconds(2.4, 12.4, 22.4, 32.4, 42.4, 52.4), k.at)
		assert.Equal(t, []string{"boom"}, k.problems)
		assert.Equal(t, oldContent, k.inForce)

		k.forget()
		k.failWith(errors.New("another"))
		k.until(70 * time.Second)
		k.expect([]string{newContent}, []string{"another"})

		k.failWith(nil)
		k.until(6 * time.Minute)
		assert.Equal(t, newContent, k.inForce)
		k.expect([]string{newContent}, []string{""})
		k.until(30 * time.Minute)
		k.expect(nil, nil)
	})
}

func TestPermanent(t *testing.T) {
	err := filewatch.Permanent(errBoom)
	assert.EqualError(t, err, "boom")
	assert.ErrorIs(t, err, errBoom)

	// It may be wrapped in turn.
	watching(t, oldContent, nil, func(t *testing.T, k *keeper) {
		k.failWith(fmt.Errorf("first of all: %w", err))
		write(t, k.path, newContent)
		k.until(time.Hour)
		k.expect([]string{newContent}, []string{"first of all: boom"})
	})
}

// A Load that the end of Run interrupts has refused nothing.
func TestInterruptedLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		write(t, path, newContent)
		k := newKeeper(t, path, func(k *keeper, o *filewatch.Options) {
			o.Load = func(ctx context.Context, content []byte) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Minute):
					return k.load(ctx, content)
				}
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, k.watch.Run(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(k.began))
		k.expect(nil, nil)
		assert.NoError(t, k.watch.Problem())

		k.run()
		k.until(70 * time.Second)
		k.expect([]string{newContent}, nil)
	})
}
