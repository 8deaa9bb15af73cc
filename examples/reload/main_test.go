package main

import (
	"bytes"
	"os"
	"os/signal"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheRateFollowsTheFile(t *testing.T) {
	// The goroutine of package signal is started here, so that the bubble need not
	// wait for it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups)
	defer signal.Stop(hangups)
	synctest.Test(t, follow)
}

func follow(t *testing.T) {
	var out bytes.Buffer
	began := time.Now()
	if err := run(t.Context(), &out, false); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	text := out.String()
	for what, times := range map[string]int{
		"in force: what the file says": 3, "refused": 1, "0 calls failed": 1, "no reload has let anybody through": 1,
		`unknown field "tokens_per_perod"`: 1,
	} {
		if n := strings.Count(text, what); n != times {
			t.Errorf("%q is there %d times, not %d", what, n, times)
		}
	}
	if t.Failed() {
		t.Log("\n" + text)
	}
}
