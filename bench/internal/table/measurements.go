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

// A subject is one line of a table.
type subject struct {
	server     string // "Postgres", "Redis"
	keys       int
	by         string
	goroutines int
}

// measurements are, for each subject and unit, what its runs have shown.
type measurements map[subject]map[string][]float64

// The number at the end is that of processors, and is left out where there is one.
var line = regexp.MustCompile(`^Benchmark(\w+)/keys=(\d+)/by=([^/]+)/goroutines=(\d+)(?:-\d+)?\s+\d+\s+(.*)$`)

func (m measurements) readFile(name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return m.read(bytes.NewReader(content))
}

// read takes the lines of benchmarks that it knows, and leaves out the rest.
func (m measurements) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		found := line.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		keys, _ := strconv.Atoi(found[2]) // digits
		goroutines, _ := strconv.Atoi(found[4])
		m.add(subject{found[1], keys, found[3], goroutines}, strings.Fields(found[5]))
	}
	return lines.Err()
}

// add takes pairs of a number and its unit.
func (m measurements) add(s subject, pairs []string) {
	if m[s] == nil {
		m[s] = map[string][]float64{}
	}
	for pair := range slices.Chunk(pairs, 2) {
		if n, err := strconv.ParseFloat(pair[0], 64); err == nil && len(pair) == 2 {
			m[s][pair[1]] = append(m[s][pair[1]], n)
		}
	}
}

// median is not ok where nothing was measured.
func (m measurements) median(s subject, unit string) (v float64, ok bool) {
	runs := slices.Sorted(slices.Values(m[s][unit]))
	n := len(runs)
	if n == 0 {
		return 0, false
	}
	return (runs[(n-1)/2] + runs[n/2]) / 2, true
}
