package answerby_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/internal/answerby"
)

type other struct{}

func TestOf(t *testing.T) {
	plain := context.WithValue(t.Context(), other{}, "value")
	_, ok := answerby.Of(plain)
	assert.False(t, ok)

	first, second := time.Unix(1, 0), time.Unix(2, 0)
	ctx := context.WithoutCancel(answerby.With(plain, first))
	at, ok := answerby.Of(ctx)
	assert.True(t, ok)
	assert.Equal(t, first, at)
	assert.Equal(t, "value", ctx.Value(other{}))

	at, _ = answerby.Of(answerby.With(ctx, second))
	assert.Equal(t, second, at)
}
