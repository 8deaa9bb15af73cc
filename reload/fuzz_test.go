package reload_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/reload"
)

// FuzzParse holds that no input makes Parse panic or hang, that every problem has a
// place in the file and a message of one line, and that what was accepted can be
// explained and compared.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/*.json", "testdata/valid/*.yaml", "testdata/invalid/*.yaml"} {
		for _, name := range files(f, pattern) {
			f.Add(read(f, name))
		}
	}
	f.Add([]byte(ownKindsFile))
	for _, text := range []string{"", "~", "\ufeff", "{", "a: *a", "? ", "- - -", "%YAML 1.2\n---\n", "<<: {<<: [{}]}", "!!binary x", "a: &a\n  <<: *a\n", "x-a: |\n b\n", "'", "\t"} {
		f.Add([]byte(text))
	}
	k := functions()
	reload.RegisterStrategy(k, "shedding", buildShedding)
	registerServer(k, limiting)
	f.Add([]byte("server: {listen: ':81', idle: off, size: 8, limits: {workers: 3, ratio: 0.5}, keys: {k: {path: 1}, l: {header: a}}, " +
		"hosts: {a: {limiter: l, limiters: {x: l}, weight: -1}}, default: a, order: [a, b], stores: [s], through: p}\n" +
		"limiters: {l: {partitioned: {key: k, each: {concurrency: {permit_limit: 1}}}, store: s}}\npipelines: {p: {strategies: [retry: {handle: never}]}}"))
	lenient := reload.NewKinds()
	lenient.AcceptUnknown()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kinds := range []*reload.Kinds{k, lenient} {
			began := time.Now()
			file, err := reload.Parse("f", data, kinds)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if err != nil {
				checkProblems(t, err, strings.Count(string(data), "\n")+strings.Count(string(data), "\r")+2)
				continue
			}
			if err := file.Explain(io.Discard); err != nil {
				t.Error(err)
			}
			for l := range file.AllLimiters() {
				file.ExplainLimiter(l.Name)
			}
			again, err := reload.Parse("f", data, kinds)
			if err != nil {
				t.Fatal(err)
			}
			if c := again.Change(file); len(c.Define)+len(c.Remove) > 0 {
				t.Errorf("a file differs from itself: %v", c)
			}
		}
	})
}

func checkProblems(t *testing.T, err error, lines int) {
	t.Helper()
	failure, ok := errors.AsType[*reload.FileError](err)
	if !ok || len(failure.Problems) == 0 {
		t.Fatalf("no problems: %v", err)
	}
	last := reload.Problem{}
	for _, p := range failure.Problems {
		if p.Line < 1 || p.Column < 1 || p.Line > lines || p.Message == "" {
			t.Errorf("of %d lines: %v", lines, p)
		}
		if p.Line < last.Line || p.Line == last.Line && p.Column < last.Column {
			t.Errorf("%v comes after %v", p, last)
		}
		if strings.Contains(p.Message, "panicked") {
			t.Error(p)
		}
		if strings.ContainsAny(p.String(), "\n\r") {
			t.Errorf("more than a line: %q", p.String())
		}
		last = p
	}
}
