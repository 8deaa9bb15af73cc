// Command testreport runs `go test -json` with its arguments, prints the output of the tests that failed, and ends with the
// tests that took longest and a count:
//
//	12.3s jobs TestThrottler_Close
//	512 passed, 0 failed, 3 skipped
//
// A test with subtests counts as one more than its subtests. A package that fails by itself (it does not build, it leaks a
// goroutine) counts as one failed test, and so does a run of no test.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// longest is how many of the tests that took longest are printed.
const longest = 20

func main() {
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	r := report{out: os.Stdout, running: map[string]map[string]*strings.Builder{}, failedTests: map[string]bool{}}
	r.read(stdout)
	err = cmd.Wait()
	if (err != nil || r.passed == 0) && r.failed == 0 { // go test was killed, or a pattern matches no package
		fmt.Fprintln(os.Stderr, "testreport: go test:", err)
		r.failed = 1
	}
	fmt.Print(r.closing())
	if r.failed > 0 {
		os.Exit(1)
	}
}

// An event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// A report is what has been read so far.
type report struct {
	out                     io.Writer
	passed, failed, skipped int
	running                 map[string]map[string]*strings.Builder // by package and test: what it has printed
	failedTests             map[string]bool                        // the packages of which a test has failed
	ended                   []event                                // tests that are no part of another
}

func (r *report) read(events io.Reader) {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		switch err := json.Unmarshal(lines.Bytes(), &e); {
		case err != nil: // something that go itself says
			r.print(lines.Text() + "\n")
		case e.Action == "build-output":
			r.print(e.Output)
		case e.Test == "":
			r.packageEvent(e)
		default:
			r.testEvent(e)
		}
	}
	if err := lines.Err(); err != nil {
		r.print(err.Error() + "\n")
		r.failed++
	}
}

func (r *report) packageEvent(e event) {
	switch {
	case e.Action == "output" && e.Output != "PASS\n":
		r.print(e.Output)
	case e.Action == "fail":
		for _, printed := range r.running[e.Package] { // they did not come to an end
			r.print(printed.String())
			r.failed++
			r.failedTests[e.Package] = true
		}
		if !r.failedTests[e.Package] {
			r.failed++
		}
	}
}

func (r *report) testEvent(e event) {
	tests := r.running[e.Package]
	if tests == nil {
		tests = map[string]*strings.Builder{}
		r.running[e.Package] = tests
	}
	printed := tests[e.Test]
	switch e.Action {
	case "run":
		tests[e.Test] = &strings.Builder{}
		return
	case "output":
		if printed == nil { // a line of a test that has already ended
			r.print(e.Output)
			return
		}
		printed.WriteString(e.Output)
		return
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
	case "fail":
		r.failed++
		r.failedTests[e.Package] = true
		if printed != nil {
			r.print(printed.String())
		}
	default: // it pauses or goes on
		return
	}
	delete(tests, e.Test)
	if !strings.Contains(e.Test, "/") {
		r.ended = append(r.ended, e)
	}
}

func (r *report) print(s string) { _, _ = io.WriteString(r.out, s) }

func (r *report) closing() string {
	var text strings.Builder
	slices.SortStableFunc(r.ended, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, e := range r.ended[:min(len(r.ended), longest)] {
		fmt.Fprintf(&text, "%6.1fs %s %s\n", e.Elapsed, strings.TrimPrefix(e.Package, "github.com/weir-go/weir/"), e.Test)
	}
	fmt.Fprintf(&text, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return text.String()
}
