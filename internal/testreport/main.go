// Command testreport runs `go test -json` with the arguments that it is given, prints what a person
// wants to see of it, and ends with a count of the tests that ran:
//
//	512 passed, 0 failed, 3 skipped
//
// What passed only the second time, as a test says that runs its parts again, is shown. A test with
// subtests counts as one more than they do. A package that fails by itself (it does not
// build, it leaks a goroutine, it panics) counts as one failed test, and so does a run that ran none.
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
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		return 1
	}
	r := newReport(os.Stdout)
	readErr := r.read(stdout)
	runErr := cmd.Wait()

	if readErr != nil {
		fmt.Fprintln(os.Stderr, "testreport:", readErr)
		return 1
	}
	// go test can fail without any test to show for it: a pattern that matches no package, say.
	if runErr != nil && r.failed == 0 {
		fmt.Fprintln(os.Stderr, "testreport: go test:", runErr)
		r.failed++
	}
	if r.passed+r.failed == 0 {
		fmt.Fprintln(os.Stderr, "testreport: no test ran")
		r.failed++
	}
	fmt.Println(r.closingLine())
	if r.failed > 0 {
		return 1
	}
	return 0
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
	withoutResult map[string]bool                        // packages that have not ended
}

func newReport(out io.Writer) *report {
	return &report{
		out:           out,
		running:       map[string]map[string]*strings.Builder{},
		failedInside:  map[string]int{},
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

// packageFailed shows the tests that did not come to an end, and sees to it that the failure counts.
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
		r.failed++
		r.failedInside[e.Package]++
		if tests[e.Test] != nil {
			r.print(tests[e.Test].String())
		}
		delete(tests, e.Test)
	}
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
