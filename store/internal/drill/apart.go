package drill

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const childVariable = "WEIR_DRILL_ELSEWHERE"

// Apart runs f, which must be the whole test, in a process of its own, where it finds only its own goroutines. It runs beside
// others like it, after the tests that are not parallel.
func Apart(t *testing.T, f func()) {
	t.Helper()
	Wide(t, runtime.GOMAXPROCS(0), f)
}

// Wide is [Apart] for a test with many parallel cases that are asleep almost all of the time: atOnce of them run at once, not only
// as many as there are processors.
func Wide(t *testing.T, atOnce int, f func()) {
	t.Helper()
	if os.Getenv(childVariable) != "" {
		f()
		return
	}
	t.Parallel()
	args := []string{
		"-test.v", "-test.run=" + onlyOf(flag.Lookup("test.run").Value.String(), t.Name()), "-test.parallel=" + strconv.Itoa(atOnce),
	}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+max(time.Until(deadline)-5*time.Second, time.Second).String())
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	all, err := cmd.CombinedOutput()
	out := passes.ReplaceAllString(string(all), "")
	switch {
	case err != nil || strings.Contains(out, "testing: warning: no tests to run"):
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(out, "--- SKIP: "+t.Name()+" "):
		t.Skip(out)
	}
	t.Log(out)
}

// passes matches lines about tests that begin or pass.
var passes = regexp.MustCompile(`(?m)^\s*(=== |--- PASS: |PASS$).*\n`)

// onlyOf returns the value of -test.run for a test and those of its subtests that the value selected also selects. If
// selected has alternatives, onlyOf returns the value for all subtests.
func onlyOf(selected, test string) string {
	only := "^" + strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^") + "$"
	levels := strings.Count(test, "/") + 1
	if parts := strings.Split(selected, "/"); len(parts) > levels && !strings.Contains(selected, "|") {
		only += "/" + strings.Join(parts[levels:], "/")
	}
	return only
}
