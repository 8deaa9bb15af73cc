package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A table collects the samples, and prints a row for each period while the load runs, and a line for what goes wrong, when
// it is seen first.
type table struct {
	out   io.Writer
	loads *loads
	every time.Duration

	mu      sync.Mutex
	start   time.Time
	samples []sample
	skips   []int // by target
	row     []cell
	open    []int // by target
	oks     int
	posts   int             // the successful POSTs in this row
	limits  []time.Duration // the limiter's times in this row
	seen    map[string]bool // the failures that have their line
	slow    bool            // a slow answer of the limiter has its line
	rows    int
}

// A cell is what a row says of the GETs of a target.
type cell struct {
	sent, ok, rejected, failed int
	took                       []time.Duration
}

func newTable(out io.Writer, l *loads, every time.Duration) *table {
	return &table{
		out: out, loads: l, every: every,
		skips: make([]int, len(l.targets)), row: make([]cell, len(l.targets)), open: make([]int, len(l.targets)),
		seen: map[string]bool{},
	}
}

func (t *table) sending(target int, post bool) {
	if post {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.row[target].sent++
	t.open[target]++
}

func (t *table) skipped(target int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skips[target]++
	t.note("skipped", t.loads.targets[target].name, time.Since(t.start),
		fmt.Sprintf("%d requests have no answer yet, so the load sends no more", maxOpen))
}

func (t *table) answered(s sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !s.post {
		t.open[s.target]--
	}
	if s.failure == interrupted {
		return
	}
	t.samples = append(t.samples, s)
	if s.failure != "" {
		t.note(s.failure, t.loads.targets[s.target].name, s.answered, explain(s.failure))
	}
	t.count(&s)
	if s.asked {
		t.limits = append(t.limits, s.limiter)
		if s.limiter >= slow && s.failure == "" && !t.slow {
			t.slow = true
			t.line(t.loads.targets[s.target].name, s.answered,
				fmt.Sprintf("a request waited %s in the limiter for its decision", short(s.limiter)))
		}
	}
}

// count adds an answer to the row. It is called with mu held.
func (t *table) count(s *sample) {
	if s.post {
		if s.succeeded() {
			t.posts++
		}
		return
	}
	c := &t.row[s.target]
	c.took = append(c.took, s.answered-s.sent)
	switch {
	case s.failure != "":
		c.failed++
	case s.rejected():
		c.rejected++
	default:
		c.ok++
		t.oks++
	}
}

// slow is how long a decision takes that is worth a line.
const slow = 500 * time.Millisecond

// note prints what goes wrong, the first time that it does. It is called with mu held.
func (t *table) note(failure, target string, at time.Duration, text string) {
	if !t.seen[failure] {
		t.seen[failure] = true
		t.line(target, at, "the first "+failure+": "+text)
	}
}

func (t *table) line(target string, at time.Duration, text string) {
	fmt.Fprintf(t.out, "  -- %s  %s: %s\n", t.clock(at), target, text)
}

// follow prints a row at the end of each period until ctx is done, and then a last one for what came after.
func (t *table) follow(ctx context.Context, start time.Time) {
	t.mu.Lock()
	t.start = start
	t.head()
	t.mu.Unlock()
	timer := time.NewTimer(t.every)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			name, at := "end", time.Since(start)
			if last := time.Duration(t.rows+1) * t.every; at > last-t.every/10 {
				name, at = t.clock(last), last
			}
			t.print(name, at)
			return
		}
		at := time.Duration(t.rows+1) * t.every
		t.print(t.clock(at), at)
		timer.Reset(time.Until(start.Add(time.Duration(t.rows+1) * t.every)))
	}
}

// The columns of a target, and of all targets together.
const (
	targetColumns = "   sent   ok    429 fail  open     p99"
	totalColumns  = "   ok so far  limiter p99  POST"
)

func (t *table) head() {
	first, second := strings.Repeat(" ", 7), "   time"
	for _, target := range t.loads.targets {
		first += "   " + fmt.Sprintf("%-*s", len(targetColumns)-3, "-- "+target.name+" "+strings.Repeat("-", max(0, len(targetColumns)-7-len(target.name))))
		second += targetColumns
	}
	fmt.Fprintf(t.out, "ok: granted; 429: rejected; fail: neither; open: no answer yet; ok so far: all successes, and how many are allowed by then\n")
	fmt.Fprintf(t.out, "%s   -- all %s\n%s%s\n", first, strings.Repeat("-", len(totalColumns)-10), second, totalColumns)
}

// print prints the row that ends at the given time, if there is anything in it.
func (t *table) print(name string, at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows++
	var b strings.Builder
	fmt.Fprintf(&b, "%7s", name)
	used := false
	for i := range t.row {
		c := &t.row[i]
		used = used || c.sent > 0 || len(c.took) > 0 || t.open[i] > 0
		fmt.Fprintf(&b, "%7s%5s%7s%5s%6s%8s", dots(c.sent), dots(c.ok), dots(c.rejected), dots(c.failed), dots(t.open[i]), quantile(c.took, 0.99))
		t.row[i] = cell{}
	}
	fmt.Fprintf(&b, "%12s%13s%6s\n", fmt.Sprintf("%d of %d", t.oks, allowed(at-1)*len(t.loads.users)), quantile(t.limits, 0.99), dots(t.posts))
	t.limits, t.posts = nil, 0
	if used {
		_, _ = io.WriteString(t.out, b.String())
	}
}

// clock returns a time since the start, in seconds.
func (t *table) clock(at time.Duration) string {
	if t.every < time.Second {
		return fmt.Sprintf("%.1fs", at.Seconds())
	}
	return fmt.Sprintf("%.0fs", at.Seconds())
}

// dots returns a number; a zero is a dot, so that the other numbers are seen.
func dots(n int) string {
	if n == 0 {
		return "."
	}
	return strconv.Itoa(n)
}

// quantile returns the time that the share q of all times did not exceed, as text.
func quantile(times []time.Duration, q float64) string {
	if len(times) == 0 {
		return "."
	}
	return short(quantileOf(times, q))
}

func quantileOf(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// short returns a time with two or three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	}
}
