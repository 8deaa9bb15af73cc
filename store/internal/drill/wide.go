package drill

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const wide = "WEIR_DRILL_WIDE"

// Wide runs f, which must be the whole test, in a process of its own in which many parallel cases may be under way at
// once: in a test process there are no more than processors, and almost all of the time cases are asleep.
//
// What fails is tried once more, with fewer at once: where a machine is busy with something else, a case may come too
// late for its own clock. Both failures are shown if the second try fails, too.
func Wide(t *testing.T, atOnce int, f func()) {
	t.Helper()
	if os.Getenv(wide) != "" {
		f()
		return
	}
	t.Parallel() // with others like it, after the tests that need the machine
	first, err := runAgain(t, "^"+regexp.QuoteMeta(t.Name())+"$", atOnce)
	if err == nil {
		return
	}
	failed := failures(first)
	if len(failed) == 0 || len(failed) > 40 {
		t.Fatalf("%v\n%s", err, first)
	}
	t.Logf("tried again: %s", strings.Join(failed, ", "))
	if second, err := runAgain(t, pattern(failed), 8); err != nil {
		t.Fatalf("%v\n%s\nAnd once more:\n%s", err, first, second)
	}
}

// runAgain runs tests of this binary in another process.
func runAgain(t *testing.T, tests string, atOnce int) (string, error) {
	args := []string{"-test.run=" + tests, "-test.parallel=" + strconv.Itoa(atOnce)}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), wide+"=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+) `)

// failures are the names of the tests that failed, without those that failed only because a part of them did.
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

// pattern is what -test.run takes for these tests. It may name a few more.
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
