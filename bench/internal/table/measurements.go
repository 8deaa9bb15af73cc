package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A subject is the full name of a benchmark, such as "Redis/keys=1/by=weir/goroutines=32".
type subject string

// with returns the subject whose name differs from that of s in one place, such as "by=throttled".
func (s subject) with(part string) subject {
	key, _, _ := strings.Cut(part, "=")
	parts := strings.Split(string(s), "/")
	for i, p := range parts {
		if strings.HasPrefix(p, key+"=") {
			parts[i] = part
		}
	}
	return subject(strings.Join(parts, "/"))
}

// by returns the contender, and the rest of the name.
func (s subject) by() (by, rest string) {
	var others []string
	for part := range strings.SplitSeq(string(s), "/") {
		if name, ok := strings.CutPrefix(part, "by="); ok {
			by = name
		} else {
			others = append(others, part)
		}
	}
	return by, strings.Join(others, ", ")
}

// measurements are the results of all runs, by subject.
type measurements struct {
	subjects []subject                        // in the order in which they first ran
	runs     map[subject]map[string][]float64 // by unit, in the order of the runs
}

// line matches a line of output. The number behind the name, which is that of processors, is missing if there is one.
var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

func (m *measurements) readFile(name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return m.read(bytes.NewReader(content))
}

// read adds the lines of benchmarks and ignores the rest.
func (m *measurements) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if found := line.FindStringSubmatch(lines.Text()); found != nil {
			m.add(subject(found[1]), strings.Fields(found[2]))
		}
	}
	return lines.Err()
}

// add adds a run: pairs of a number and its unit.
func (m *measurements) add(s subject, pairs []string) {
	if m.runs == nil {
		m.runs = map[subject]map[string][]float64{}
	}
	if m.runs[s] == nil {
		m.runs[s] = map[string][]float64{}
		m.subjects = append(m.subjects, s)
	}
	for pair := range slices.Chunk(pairs, 2) {
		if n, err := strconv.ParseFloat(pair[0], 64); err == nil && len(pair) == 2 {
			m.runs[s][pair[1]] = append(m.runs[s][pair[1]], n)
		}
	}
}

// keepBest keeps only the best value of each subject and unit: the highest per second, and the lowest of other units.
func (m *measurements) keepBest() {
	for _, units := range m.runs {
		for unit, runs := range units {
			best := slices.Min(runs)
			if strings.HasSuffix(unit, "/s") {
				best = slices.Max(runs)
			}
			units[unit] = []float64{best}
		}
	}
}

// median returns the median of a subject. ok is false if it was not measured.
func (m *measurements) median(s subject, unit string) (v float64, ok bool) {
	return median(m.runs[s][unit])
}

func median(runs []float64) (v float64, ok bool) {
	runs = slices.Sorted(slices.Values(runs))
	n := len(runs)
	if n == 0 {
		return 0, false
	}
	return (runs[(n-1)/2] + runs[n/2]) / 2, true
}

// compare returns the median over i of with(ours[i], theirs[i]), because runs of the same round are near each other in
// time. If the two have not run equally often, it returns with of their medians.
func compare(ours, theirs []float64, with func(ours, theirs float64) float64) (v float64, ok bool) {
	if len(ours) != len(theirs) {
		a, ok := median(ours)
		b, both := median(theirs)
		return with(a, b), ok && both
	}
	rounds := make([]float64, len(ours))
	for i := range ours {
		rounds[i] = with(ours[i], theirs[i])
	}
	return median(rounds)
}
