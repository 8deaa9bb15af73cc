package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryCallComesThroughAtTheLimitersPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		began := time.Now()
		require.NoError(t, run(t.Context(), &out))
		text := out.String()
		if took := time.Since(began); took != 1770*time.Millisecond {
			t.Errorf("took %v: seven calls at four a second take 1.75s, and the work 20ms", took)
		}
		for what, want := range map[string]int{"admitted": calls, "done": calls, "in the queue": 5, "retry after 750ms": 7} {
			if n := strings.Count(text, what); n != want {
				t.Errorf("%q is there %d times, not %d", what, n, want)
			}
		}
		if !strings.Contains(text, "granted 10 leases and rejected 7; 0 tokens are left, 0 calls wait") {
			t.Error("the statistics at the end are others")
		}
		if t.Failed() {
			t.Log("\n" + text)
		}
	})
}
