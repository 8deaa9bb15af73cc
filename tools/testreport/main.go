// Command testreport runs `go test -json` with its arguments, prints the output of the tests that failed, and ends with
// a count of the tests that ran:
//
//	512 passed, 0 failed, 3 skipped
//
// It also prints the output of a test that repeats its parts and passed only the second time. A test with subtests
// counts as one more than its subtests. A package that fails by itself (it does not build, it leaks a goroutine, it
// panics) counts as one failed test, and so does a run that ran none.
//
// With -again as its first argument it runs the tests that failed once more, when all others are done, and names them.
// This is for tests that go by real time, on a machine that may be too slow for them. All other arguments are packages
// or flags of one word, as in -p=1. A test that failed for a reason other than time is not run again: a data race, a
// panic, permits beyond a limit.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/weir-go/weir/tools/realtime"
)

func main() {
	os.Exit(run(os.Stdout, os.Stderr, os.Args[1:]))
}

func run(out, errs io.Writer, args []string) int {
	again := len(args) > 0 && args[0] == "-again"
	if again {
		args = args[1:]
	}
	r, err := goTest(out, errs, args)
	if err == nil && again {
		err = r.tryAgain(errs, args)
	}
	if err != nil {
		_, _ = fmt.Fprintln(errs, "testreport:", err)
		return 1
	}
	_, _ = fmt.Fprintln(out, r.closingLine())
	if r.failed > 0 {
		return 1
	}
	return 0
}

// goTest runs go test with those arguments.
func goTest(out, errs io.Writer, args []string) (*report, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = errs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := newReport(out)
	readErr := r.read(stdout)
	runErr := cmd.Wait()

	if readErr != nil {
		return nil, readErr
	}
	// go test can fail without any test to show for it: a pattern that matches no package, say.
	if runErr != nil && r.failed == 0 {
		_, _ = fmt.Fprintln(errs, "testreport: go test:", runErr)
		r.failed++
	}
	if r.passed+r.failed == 0 {
		_, _ = fmt.Fprintln(errs, "testreport: no test ran")
		r.failed++
	}
	return r, nil
}

// tryAgain runs the tests that failed, and may have been too slow, package by package.
func (r *report) tryAgain(errs io.Writer, args []string) error {
	for _, pkg := range sortedKeys(r.failedTests) {
		if r.final[pkg] {
			continue
		}
		tests := sortedKeys(r.failedTests[pkg])
		r.print(triedAgain + pkg + ": " + strings.Join(tests, ", ") + "\n")
		second, err := goTest(r.out, errs, againArgs(args, pkg, tests))
		if err != nil {
			return err
		}
		if second.failed == 0 {
			n := r.failedInside[pkg]
			r.failed, r.passed = r.failed-n, r.passed+n
		}
	}
	return nil
}

// againArgs are those arguments of go test that run these tests of pkg, and no others.
func againArgs(args []string, pkg string, tests []string) []string {
	var all []string
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			all = append(all, arg)
		}
	}
	return append(all, "-count=1", "-run=^("+strings.Join(tests, "|")+")$", pkg)
}

// An event is a line of `go test -json`; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // in build events, where Package is empty
	Test       string
	Output     string
}

// triedAgain is what a test logs that has passed only the second time. It is shown.
const triedAgain = "tried again: "

type report struct {
	out                     io.Writer
	passed, failed, skipped int

	running       map[string]map[string]*strings.Builder // by package and test: what it printed so far
	failedInside  map[string]int                         // by package: its failed tests
	failedTests   map[string]map[string]bool             // by package: those of them that are no part of another
	final         map[string]bool                        // packages that failed for a reason other than time
	withoutResult map[string]bool                        // packages that have not ended
}

func newReport(out io.Writer) *report {
	return &report{
		out:           out,
		running:       map[string]map[string]*strings.Builder{},
		failedInside:  map[string]int{},
		failedTests:   map[string]map[string]bool{},
		final:         map[string]bool{},
		withoutResult: map[string]bool{},
	}
}

func (r *report) read(stdout io.Reader) error {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			r.lost()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		_, _ = r.out.Write(line) // not an event: something that go itself says
		return
	}
	switch {
	case e.Action == "build-output":
		r.print(e.Output)
	case e.Package == "":
	case e.Test == "":
		r.packageEvent(e)
	default:
		r.testEvent(e)
	}
}

func (r *report) packageEvent(e event) {
	switch e.Action {
	case "start":
		r.withoutResult[e.Package] = true
	case "output":
		if e.Output != "PASS\n" {
			r.print(e.Output)
		}
	case "pass", "skip":
		delete(r.withoutResult, e.Package)
	case "fail":
		r.packageFailed(e.Package)
	}
}

// packageFailed prints the tests that did not come to an end, and counts the failure.
func (r *report) packageFailed(pkg string) {
	delete(r.withoutResult, pkg)
	tests := r.running[pkg]
	for _, name := range sortedKeys(tests) {
		r.print(tests[name].String())
		r.failed++
		r.failedInside[pkg]++
	}
	delete(r.running, pkg)
	if r.failedInside[pkg] == 0 {
		r.failed++
	}
	if len(tests) > 0 || r.failedInside[pkg] == 0 {
		r.final[pkg] = true
	}
}

func (r *report) testEvent(e event) {
	tests := r.running[e.Package]
	if tests == nil {
		tests = map[string]*strings.Builder{}
		r.running[e.Package] = tests
	}
	switch e.Action {
	case "run":
		tests[e.Test] = &strings.Builder{}
	case "output":
		if tests[e.Test] == nil { // a line of a test that has already ended
			r.print(e.Output)
			return
		}
		tests[e.Test].WriteString(e.Output)
	case "pass":
		r.passed++
		if tests[e.Test] != nil && strings.Contains(tests[e.Test].String(), triedAgain) {
			r.print(tests[e.Test].String())
		}
		delete(tests, e.Test)
	case "skip":
		r.skipped++
		delete(tests, e.Test)
	case "fail":
		r.testFailed(e)
		delete(tests, e.Test)
	}
}

func (r *report) testFailed(e event) {
	r.failed++
	r.failedInside[e.Package]++
	if printed := r.running[e.Package][e.Test]; printed != nil {
		r.print(printed.String())
		if realtime.NotLate.MatchString(printed.String()) {
			r.final[e.Package] = true
		}
	}
	if r.failedTests[e.Package] == nil {
		r.failedTests[e.Package] = map[string]bool{}
	}
	top, _, _ := strings.Cut(e.Test, "/")
	r.failedTests[e.Package][top] = true
}

// lost counts the packages whose end was never reported: go test was killed.
func (r *report) lost() {
	for _, pkg := range sortedKeys(r.withoutResult) {
		r.print("no result: " + pkg + "\n")
		r.packageFailed(pkg)
	}
}

func (r *report) print(s string) { _, _ = io.WriteString(r.out, s) }

func (r *report) closingLine() string {
	line := fmt.Sprintf("%d passed, %d failed", r.passed, r.failed)
	if r.skipped > 0 {
		line += fmt.Sprintf(", %d skipped", r.skipped)
	}
	return line
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
