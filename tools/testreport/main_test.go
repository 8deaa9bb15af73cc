package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One package whose tests end in each way, one with a test that ends its process, and one that does not build.
func TestReport(t *testing.T) {
	var out strings.Builder
	r := report{out: &out, running: map[string]map[string]*strings.Builder{}, failedTests: map[string]bool{}}
	r.read(strings.NewReader(`go: downloading a module
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pause","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestC","Output":"the reason\n"}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":2}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":3.25}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"Action":"run","Package":"q","Test":"TestD"}
{"Action":"output","Package":"q","Test":"TestD","Output":"panic: no\n"}
{"Action":"fail","Package":"q"}
{"ImportPath":"r","Action":"build-output","Output":"undefined: x\n"}
{"ImportPath":"r","Action":"build-fail"}
{"Action":"start","Package":"r"}
{"Action":"fail","Package":"r"}
`))
	assert.Equal(t, "go: downloading a module\nthe reason\nFAIL\tp\t0.1s\npanic: no\nundefined: x\n", out.String())
	assert.Equal(t, "   3.2s p TestA\n   2.0s p TestC\n   0.0s p TestB\n1 passed, 3 failed, 1 skipped\n", r.closing())
}
