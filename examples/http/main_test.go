package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A machine that stands still can spread the requests, so that fewer are rejected.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), &out)
	if text := out.String(); err != nil || strings.Count(text, "200 OK") != requests || !strings.HasSuffix(text, "all 7 requests came through\n") {
		t.Errorf("%v\n%s", err, text)
	}
}
