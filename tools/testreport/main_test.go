package main

import (
	"io"
	"os"
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

// What fails once passes the second time; what fails twice, races or panics fails.
func TestRun_Again(t *testing.T) {
	for name, c := range map[string]struct {
		fails string
		code  int
	}{
		"once":             {`t.Error("too late")`, 0},
		"in a part":        {`t.Run("part", func(t *testing.T) { t.Error("too late") })`, 0},
		"for good":         {`os.Remove("marker"); t.Error("wrong")`, 1},
		"beyond a limit":   {`t.Error("5 were granted of 4")`, 1},
		"with a panic":     {`panic("wrong")`, 1},
		"with its process": {`os.Exit(3)`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("GOWORK", "off")
			t.Setenv("GOFLAGS", "")
			require.NoError(t, os.WriteFile("go.mod", []byte("module flaky\n"), 0o600))
			require.NoError(t, os.WriteFile("flaky_test.go", []byte(`package flaky

import (
	"os"
	"testing"
)

func TestOther(t *testing.T) {}

func TestFlaky(t *testing.T) {
	if _, err := os.Stat("marker"); err == nil {
		return
	}
	if err := os.WriteFile("marker", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	`+c.fails+`
}
`), 0o600))
			var out strings.Builder
			require.Equal(t, c.code, run(&out, io.Discard, []string{"-again", "-vet=off", "."}), &out)
			require.NoError(t, os.RemoveAll("marker"))
			require.Equal(t, 1, run(io.Discard, io.Discard, []string{"-vet=off", "."}), "it is not tried again unasked")
		})
	}
}

func TestAgainArgs(t *testing.T) {
	require.Equal(t, []string{"-race", "-p=1", "-count=1", "-run=^(TestA|TestB)$", "example.org/p"},
		againArgs([]string{"-race", "-p=1", "./p", "./q"}, "example.org/p", []string{"TestA", "TestB"}))
}
