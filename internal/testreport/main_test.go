package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReport(t *testing.T) {
	tests := []struct {
		name   string
		events string
		line   string
		shown  []string
		hidden []string
	}{
		{
			name: "what passes stays quiet",
			events: `
				{"Action":"start","Package":"p"}
				{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"run","Package":"p","Test":"TestB"}
				{"Action":"skip","Package":"p","Test":"TestB"}
				{"Action":"output","Package":"p","Output":"PASS\n"}
				{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
				{"Action":"pass","Package":"p"}`,
			line:   "1 passed, 0 failed, 1 skipped",
			shown:  []string{"ok  \tp"},
			hidden: []string{"chatter", "PASS"},
		},
		{
			name: "what passed only the second time is shown",
			events: `
				{"Action":"start","Package":"p"}
				{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: tried again: TestA/b\n"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"        too late\n"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p"}`,
			line:  "1 passed, 0 failed",
			shown: []string{"tried again: TestA/b", "too late"},
		},
		{
			name: "a failed test is shown, and its package not counted again",
			events: `
				{"Action":"start","Package":"p"}
				{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"output","Package":"p","Test":"TestA","Output":"the reason\n"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}`,
			line:  "0 passed, 1 failed",
			shown: []string{"the reason"},
		},
		{
			name: "a panic leaves tests without an end",
			events: `
				{"Action":"start","Package":"p"}
				{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"run","Package":"p","Test":"TestB"}
				{"Action":"output","Package":"p","Test":"TestB","Output":"panic: no\n"}
				{"Action":"fail","Package":"p"}`,
			line:  "1 passed, 1 failed",
			shown: []string{"panic: no"},
		},
		{
			name: "a package that fails by itself",
			events: `
				{"ImportPath":"p","Action":"build-output","Output":"undefined: x\n"}
				{"ImportPath":"p","Action":"build-fail"}
				{"Action":"start","Package":"p"}
				{"Action":"fail","Package":"p"}`,
			line:  "0 passed, 1 failed",
			shown: []string{"undefined: x"},
		},
		{
			name: "a run that was cut off",
			events: `
				{"Action":"start","Package":"p"}
				{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p","Test":"TestA"}`,
			line:  "1 passed, 1 failed",
			shown: []string{"no result: p"},
		},
		{
			name:   "lines that are no events go through",
			events: "go: downloading a module",
			line:   "0 passed, 0 failed",
			shown:  []string{"go: downloading a module"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			require.NoError(t, r.read(strings.NewReader(tt.events)))
			require.Equal(t, tt.line, r.closingLine())
			for _, s := range tt.shown {
				require.Contains(t, out.String(), s)
			}
			for _, s := range tt.hidden {
				require.NotContains(t, out.String(), s)
			}
		})
	}
}
