package main

import (
	"bytes"
	"os"
	"os/signal"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTheRateFollowsTheFile(t *testing.T) {
	// Start the goroutine of package signal outside of the bubble, which would wait for it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups)
	defer signal.Stop(hangups)
	synctest.Test(t, follow)
}

func follow(t *testing.T) {
	var out bytes.Buffer
	began := time.Now()
	assert.NoError(t, run(t.Context(), &out))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	text := out.String()
	for what, times := range map[string]int{
		"it is in force": 2, "refused": 1, "\n0 calls failed": 1, `unknown field "tokens_per_perod"`: 1, "calls a second are admitted": 4,
	} {
		if n := strings.Count(text, what); n != times {
			t.Errorf("%q is there %d times, not %d", what, n, times)
		}
	}
	if t.Failed() {
		t.Log("\n" + text)
	}
}
