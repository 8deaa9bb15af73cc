package drill

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/realtime"
)

const childVariable = "WEIR_DRILL_ELSEWHERE"

// Wide is [Retried] for a test with many parallel cases that are asleep almost all of the time: atOnce of them run at
// once, not only as many as there are processors.
func Wide(t *testing.T, atOnce int, f func()) {
	t.Helper()
	apart(t)
	retry(t, atOnce, f)
}

// Retried runs f, which must be the whole test, in a process of its own. What fails is tried once more: on a machine
// that is busy with something else, a server, a network or the test itself can be late. What was tried again is logged,
// and if it fails again, both failures are shown. A data race, a panic, and permits beyond a limit do not depend on
// time, and are not tried again.
func Retried(t *testing.T, f func()) {
	t.Helper()
	apart(t)
	retry(t, runtime.GOMAXPROCS(0), f)
}

// apart lets a test that only waits for its process run beside others like it, after the tests that need the machine.
func apart(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		t.Parallel()
	}
}

// retry is Retried with so many parallel cases. It returns what was tried again, and why.
func retry(t *testing.T, atOnce int, f func()) (again string) {
	t.Helper()
	if os.Getenv(childVariable) != "" {
		f()
		return ""
	}
	first, err := runElsewhere(t, onlyOf(flag.Lookup("test.run").Value.String(), t.Name()), atOnce)
	if strings.Contains(first, "testing: warning: no tests to run") {
		t.Fatal(first)
	}
	if err == nil {
		if strings.Contains(first, "--- SKIP: "+t.Name()+" ") {
			t.Skip(first)
		}
		t.Log(first)
		return ""
	}
	failed := failures(first)
	if len(failed) == 0 || len(failed) > 40 || realtime.NotLate.MatchString(first) {
		t.Fatalf("%v\n%s", err, first)
	}
	if second, err := runElsewhere(t, pattern(failed), min(atOnce, 8)); err != nil {
		t.Fatalf("%v\n%s\nAnd once more:\n%s", err, first, second)
	}
	again = strings.Join(failed, ", ") + "\n" + first
	t.Logf("tried again: %s", again) // internal/testreport shows it
	return again
}

// onlyOf returns the value of -test.run for a test and those of its subtests that the value selected also selects. If
// selected has alternatives, onlyOf returns the value for all subtests.
func onlyOf(selected, test string) string {
	only, levels := pattern([]string{test}), strings.Count(test, "/")+1
	if parts := strings.Split(selected, "/"); len(parts) > levels && !strings.Contains(selected, "|") {
		only += "/" + strings.Join(parts[levels:], "/")
	}
	return only
}

// runElsewhere runs tests of this binary in another process. It returns the output without the lines about tests that
// begin or pass.
func runElsewhere(t *testing.T, tests string, atOnce int) (string, error) {
	args := []string{"-test.v", "-test.run=" + tests, "-test.parallel=" + strconv.Itoa(atOnce)}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+max(time.Until(deadline)-5*time.Second, time.Second).String())
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.CombinedOutput()
	return passes.ReplaceAllString(string(out), ""), err
}

// passes matches lines about tests that begin or pass.
var passes = regexp.MustCompile(`(?m)^\s*(=== |--- PASS: |PASS$).*\n`)

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+) `)

// failures returns the names of the tests that failed, except tests that failed only because a subtest did.
func failures(out string) (leaves []string) {
	var all []string
	for _, m := range failure.FindAllStringSubmatch(out, -1) {
		all = append(all, m[1])
	}
	for _, name := range all {
		if !slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			leaves = append(leaves, name)
		}
	}
	return leaves
}

// pattern returns what -test.run takes for these tests. It can match a few more.
func pattern(names []string) string {
	var levels [][]string
	for _, name := range names {
		for i, part := range strings.Split(name, "/") {
			if i == len(levels) {
				levels = append(levels, nil)
			}
			if part = regexp.QuoteMeta(part); !slices.Contains(levels[i], part) {
				levels[i] = append(levels[i], part)
			}
		}
	}
	var all []string
	for _, parts := range levels {
		all = append(all, "^("+strings.Join(parts, "|")+")$")
	}
	return strings.Join(all, "/")
}
