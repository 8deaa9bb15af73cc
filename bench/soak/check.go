package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A soak collects the counts and violations of the parts.
type soak struct {
	began time.Time

	mu     sync.Mutex
	w      io.Writer
	broken int
	counts map[string]*atomic.Int64
}

func newSoak(w io.Writer) *soak {
	return &soak{began: time.Now(), w: w, counts: map[string]*atomic.Int64{}}
}

func (s *soak) print(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.w, "%8s  %s\n", time.Since(s.began).Round(100*time.Millisecond), fmt.Sprintf(format, args...))
}

// violation counts a broken promise. It prints the first hundred.
func (s *soak) violation(format string, args ...any) {
	s.mu.Lock()
	s.broken++
	n := s.broken
	s.mu.Unlock()
	if n <= 100 {
		s.print("BROKEN "+format, args...)
	}
}

func (s *soak) violations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// count returns the figure of that name.
func (s *soak) count(name string) *atomic.Int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[name] == nil {
		s.counts[name] = &atomic.Int64{}
	}
	return s.counts[name]
}

func (s *soak) figures() {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.counts))
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s %d, ", name, s.counts[name].Load())
	}
	s.mu.Unlock()
	s.print("%s", strings.TrimSuffix(b.String(), ", "))
}

// A rateCheck checks that over any time no more is granted than the burst and what the long run brings: a bucket that leaks.
type rateCheck struct {
	s         *soak
	name      string
	burst     float64 // the most at one moment
	perSecond float64 // the most in the long run
	granted   *atomic.Int64

	mu     sync.Mutex
	excess float64   // how far the grants are above the long run; below 0, what was forgiven and not granted yet
	at     time.Time // when excess was computed
	until  time.Time // when what was forgiven and not granted ends
}

func (s *soak) rateCheck(name string, burst, perSecond float64) *rateCheck {
	return &rateCheck{s: s, name: name, burst: burst, perSecond: perSecond, granted: s.count(name), at: s.began}
}

// slack is how long a grant can take and still count: it may have been granted at any time since it was asked for.
const slack = 100 * time.Millisecond

// add counts a grant of n permits that was asked for at that time and has come now. A grant that took longer than slack
// is not counted, because it is not known when it was granted.
func (r *rateCheck) add(asked time.Time, n int) {
	r.granted.Add(int64(n))
	if time.Since(asked) > slack {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(time.Now())
	if r.excess += float64(n); r.excess > r.burst+r.perSecond*slack.Seconds()+1 {
		r.s.violation("%s: %.0f permits above %g a second, the burst is %.0f", r.name, r.excess, r.perSecond, r.burst)
		r.excess = 0
	}
}

// pass lets time go by. It is called with mu held.
func (r *rateCheck) pass(now time.Time) {
	if r.excess > 0 {
		r.excess = max(r.excess-r.perSecond*now.Sub(r.at).Seconds(), 0)
	} else if now.After(r.until) {
		r.excess = 0
	}
	r.at = now
}

// forgive allows another burst now, after a store has lost its state, and the permits of d, by which its clock has stepped.
func (r *rateCheck) forgive(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(time.Now())
	r.excess -= r.burst + r.perSecond*max(d, 0).Seconds()
	r.until = time.Now().Add(10 * time.Second)
}

// A heldCheck checks that no more permits are held than there are.
type heldCheck struct {
	s       *soak
	name    string
	most    int64
	extra   atomic.Int64 // permits that a store has forgotten and may grant again
	held    atomic.Int64
	granted *atomic.Int64
}

func (s *soak) heldCheck(name string, most int64) *heldCheck {
	return &heldCheck{s: s, name: name, most: most, granted: s.count(name)}
}

// take counts permits that were just granted.
func (h *heldCheck) take(n int) {
	h.granted.Add(int64(n))
	if held := h.held.Add(int64(n)); held > h.most+h.extra.Load() {
		h.s.violation("%s: %d permits are held, there are %d", h.name, held, h.most)
	}
}

// release counts permits that are about to be released.
func (h *heldCheck) release(n int) { h.held.Add(-int64(n)) }

// forgive allows twice as many for a while, after a store has lost its state.
func (h *heldCheck) forgive() {
	h.extra.Add(h.most)
	time.AfterFunc(5*time.Second, func() { h.extra.Add(-h.most) })
}

// A countingHandler counts the panics that weir has recovered.
type countingHandler struct{ recovered atomic.Int64 }

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *countingHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *countingHandler) WithGroup(string) slog.Handler            { return h }
func (h *countingHandler) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "recovered") {
		h.recovered.Add(1)
	}
	return nil
}
