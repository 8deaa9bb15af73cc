package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slow is how long a decision takes that is worth a line.
const slow = 500 * time.Millisecond

// note prints what goes wrong, the first time that it does. It is called with mu held.
func (l *load) note(failure string, target int, at time.Duration, text string) {
	if !l.seen[failure] {
		l.seen[failure] = true
		l.line(target, at, "the first "+failure+": "+text)
	}
}

func (l *load) line(target int, at time.Duration, text string) {
	fmt.Fprintf(l.out, "  -- %s  %s: %s\n", l.at(at), l.targets[target].name, text)
}

// The columns of a target, and of all targets together.
const (
	targetColumns = "   sent   ok    429 fail  open     p99"
	totalColumns  = "   ok so far  limiter p99  POST"
)

// follow prints a row at the end of each period until ctx is done, and then a last one for what came after.
func (l *load) follow(ctx context.Context) {
	first := strings.Repeat(" ", 7)
	for _, t := range l.targets {
		first += fmt.Sprintf("   -- %s %s", t.name, strings.Repeat("-", max(0, len(targetColumns)-7-len(t.name))))
	}
	l.mu.Lock()
	fmt.Fprintf(l.out, "ok: granted; 429: rejected; fail: neither; open: no answer yet; ok so far: all successes, and how many are allowed by then\n")
	fmt.Fprintf(l.out, "%s   -- all %s\n   time%s%s\n",
		first, strings.Repeat("-", len(totalColumns)-10), strings.Repeat(targetColumns, len(l.targets)), totalColumns)
	l.mu.Unlock()
	timer := time.NewTimer(l.every)
	defer timer.Stop()
	for end := l.every; ; end += l.every {
		timer.Reset(time.Until(l.start.Add(end)))
		select {
		case <-timer.C:
			l.row(l.at(end), end)
		case <-ctx.Done():
			if now := time.Since(l.start); now <= end-l.every/10 {
				l.row("end", now)
			} else {
				l.row(l.at(end), end)
			}
			return
		}
	}
}

// row prints what has been sent and answered since the last row, if there is anything.
func (l *load) row(name string, end time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok, posts, limiter := 0, 0, []time.Duration{}
	for i := range l.samples {
		s := &l.samples[i]
		switch {
		case !s.post && s.succeeded():
			ok++
		case s.post && s.succeeded() && i >= l.shown:
			posts++
		}
		if i >= l.shown && s.limiter >= 0 {
			limiter = append(limiter, s.limiter)
		}
	}
	var b strings.Builder
	used := false
	for target := range l.targets {
		var ok, rejected, failed int
		var took []time.Duration
		for _, s := range l.samples[l.shown:] {
			if s.post || s.target != target {
				continue
			}
			took = append(took, s.answered-s.sent)
			switch {
			case s.failure != "":
				failed++
			case s.rejected():
				rejected++
			default:
				ok++
			}
		}
		sent := l.sent[target] - l.sentAt[target]
		l.sentAt[target] = l.sent[target]
		used = used || sent > 0 || len(took) > 0 || l.open[target] > 0
		fmt.Fprintf(&b, "%7s%5s%7s%5s%6s%8s", dots(sent), dots(ok), dots(rejected), dots(failed), dots(l.open[target]), shortOf(took, 0.99))
	}
	l.shown = len(l.samples)
	if used {
		fmt.Fprintf(l.out, "%7s%s%12s%13s%6s\n", name, b.String(), fmt.Sprintf("%d of %d", ok, allowed(end-1)), shortOf(limiter, 0.99), dots(posts))
	}
}

// allowed returns how many requests of a user the limit allows in a time: one at once, and one for each interval that has
// passed.
func allowed(d time.Duration) int { return 1 + int(max(d, 0)/interval) }

// errTooMany is the error of a run in which a limiter has granted more than its limit.
var errTooMany = errors.New("the limiter has granted more than the limit allows")

// A verdict compares the successes with the limit.
type verdict struct {
	granted, allowed int
	seconds          float64 // from before the first GET to the last success, by PostgreSQL's clock: the decisions are in it
	excess           int     // by how many the successes were above the limit when they were most, by the same clock
	closest          time.Duration
	tooClose         int // successes that came too soon after another
}

// closest is the shortest allowed time from sending a request that succeeds to the answer of the next: two decisions are not
// further apart. The clock of this program may run a thousandth faster or slower than PostgreSQL's while that is being set.
const closest = interval - tick - interval/1000

func judge(samples []sample, clock time.Time) verdict {
	v := verdict{allowed: 1}
	var granted []sample
	for _, s := range samples {
		if !s.post && s.succeeded() {
			granted = append(granted, s)
		}
	}
	slices.SortFunc(granted, func(a, b sample) int { return a.now.Compare(b.now) })
	for i, s := range granted {
		v.granted, v.allowed, v.seconds = i+1, allowed(s.now.Sub(clock)+tick), s.now.Sub(clock).Seconds()
		v.excess = max(v.excess, v.granted-v.allowed)
	}
	slices.SortFunc(granted, func(a, b sample) int { return cmp.Compare(a.answered, b.answered) })
	for i := 1; i < len(granted); i++ {
		apart := granted[i].answered - granted[i-1].sent
		if v.closest == 0 || apart < v.closest {
			v.closest = apart
		}
		if apart < closest {
			v.tooClose++
		}
	}
	return v
}

// asked returns how often the limiters were asked.
func (l *load) asked() (calls int) {
	for _, s := range l.samples {
		if s.limiter >= 0 {
			calls++
		}
	}
	return calls
}

// conclude prints the verdict, and returns errTooMany if the limit did not hold.
func (l *load) conclude(more func()) error {
	v := judge(l.samples, l.clock)
	fmt.Fprintf(l.out, "\n%s: %d successes, and %d are allowed: one at once, and one for each %v of the\n", user, v.granted, v.allowed, interval)
	fmt.Fprintf(l.out, "%.1f s from the first request to the last success, by PostgreSQL's clock.\n", v.seconds)
	if v.granted > 1 {
		fmt.Fprintf(l.out, "The closest two: %.3f s, from sending the one to the answer of the next.\n", v.closest.Seconds())
	}
	times, failures := map[string][]time.Duration{}, map[string]int{}
	gets, undecided := 0, 0
	for _, s := range l.samples {
		method, outcome := "GET ", "granted"
		switch {
		case s.failure != "":
			failures[s.failure]++
			outcome = "failed"
		case s.rejected():
			outcome = "rejected"
		}
		if s.limiter >= 0 {
			times["limiter, "+outcome] = append(times["limiter, "+outcome], s.limiter)
		}
		if s.post {
			method, outcome = "POST ", strings.Replace(outcome, "granted", "created", 1)
		} else if gets++; s.failure != "" {
			undecided++
		}
		times[method+outcome] = append(times[method+outcome], s.answered-s.sent)
		times["sent late by"] = append(times["sent late by"], max(0, s.sent-s.due))
	}
	fmt.Fprintf(l.out, "\n%-18s%9s%11s%11s%11s%11s\n", "", "count", "mean", "p50", "p99", "max")
	for _, name := range []string{
		"limiter, granted", "limiter, rejected", "limiter, failed",
		"GET granted", "GET rejected", "GET failed", "POST created", "POST failed", "sent late by",
	} {
		if all := times[name]; len(all) > 0 {
			sum := time.Duration(0)
			for _, d := range all {
				sum += d
			}
			fmt.Fprintf(l.out, "%-18s%9d%11s%11s%11s%11s\n", name, len(all),
				short(sum/time.Duration(len(all))), shortOf(all, 0.5), shortOf(all, 0.99), short(slices.Max(all)))
		}
	}
	fmt.Fprintf(l.out, "\n")
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		fmt.Fprintf(l.out, "%d × %s: %s.\n", failures[name], name, explain(name))
	}
	for i, n := range l.skipped {
		if n > 0 {
			fmt.Fprintf(l.out, "%d requests to %s were not sent, because %d others had no answer.\n", n, l.targets[i].name, maxOpen)
		}
	}
	if late := times["sent late by"]; quantile(late, 0.99) > 100*time.Millisecond {
		fmt.Fprintf(l.out, "One request of a hundred was sent more than %s late: the machine is too busy for this load.\n", shortOf(late, 0.99))
	}
	more()
	switch {
	case v.excess > 0 || v.tooClose > 0:
		fmt.Fprintf(l.out, "FAILED: %v: by up to %d, and %d successes came less than %v after another.\n", errTooMany, v.excess, v.tooClose, interval)
		return errTooMany
	case gets == 0:
		fmt.Fprintf(l.out, "No GET was answered.\n")
	case undecided > 0:
		fmt.Fprintf(l.out, "The limit held, but %d of %d requests had no decision.\n", undecided, gets)
	default:
		fmt.Fprintf(l.out, "The limit held, and each of %d requests had its decision.\n", gets)
	}
	return nil
}

// at returns a time since the start, in seconds.
func (l *load) at(d time.Duration) string {
	if l.every < time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%.0fs", d.Seconds())
}

// dots returns a number; a zero is a dot, so that the other numbers are seen.
func dots(n int) string {
	if n == 0 {
		return "."
	}
	return strconv.Itoa(n)
}

// quantile returns the time that the share q of all times did not exceed.
func quantile(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func shortOf(times []time.Duration, q float64) string {
	if len(times) == 0 {
		return "."
	}
	return short(quantile(times, q))
}

// short returns a time with two or three digits.
func short(d time.Duration) string {
	switch ms := float64(d) / 1e6; {
	case ms >= 10_000:
		return fmt.Sprintf("%.0f s", ms/1e3)
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1e3)
	case ms >= 10:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.2f ms", ms)
	}
}
