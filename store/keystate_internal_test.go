package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Turns can be known before the key has an answer.
func TestAnswerState_WithoutDefinition(t *testing.T) {
	var k answerState
	require.False(t, k.available(1, time.Now()))
}
