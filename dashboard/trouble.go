package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// The events of rate limiters that reject, or would reject; see strategies/ratelimit.
const (
	eventRejected       = "OnRateLimiterRejected"
	eventShadowRejected = "OnRateLimiterShadowRejected"
)

// addTrouble collects what an operator should look at, the worst first.
func (s *sampler) addTrouble(snap *snapshot) {
	all := []trouble{}
	add := func(l level, what, name, text string, since time.Time, page string) {
		all = append(all, trouble{Level: l, What: what, Name: name, Text: text, Since: utc(since), Page: page})
	}
	for _, st := range snap.Stores {
		if !st.Available {
			add(levelCritical, "store", st.Name, "is away: "+st.Error, st.Since, "stores")
		}
	}
	for _, f := range snap.Files {
		if f.Error != "" {
			add(levelError, "file", f.Path, fileTrouble(f), f.LastAttempt, "files")
		}
	}
	for _, c := range snap.Circuits {
		switch c.State {
		case "open":
			add(c.Level, "circuit", c.Source, orElse("is open", c.Cause), c.Since, "circuits")
		case "isolated":
			add(c.Level, "circuit", c.Source, "is isolated by hand"+prefixed(", by ", c.IsolatedBy), c.Since, "circuits")
		case "half_open":
			add(c.Level, "circuit", c.Source, orElse("is half open: the next calls decide whether it closes", c.Cause), c.Since, "circuits")
		}
	}
	for _, l := range snap.Limiters {
		if orZero(l.RejectedRate) > 0 {
			text := "rejects " + rateText(*l.RejectedRate) + "/s"
			if l.Shadow {
				text = "would reject " + rateText(*l.RejectedRate) + "/s, and is in shadow mode"
			}
			if l.GrantedRate != nil && !l.Shadow {
				text += " and grants " + rateText(*l.GrantedRate) + "/s"
			}
			add(l.Level, "limiter", l.Name, text, l.Since, "limiters")
		}
		if l.Note != "" {
			add(levelNotice, "limiter", l.Name, l.Note, s.seenSince(snap.Time, "limiter note", l.Name), "limiters")
		}
		if o := l.Override; o != nil {
			text := fmt.Sprintf("has other limits than the configuration until %s, by %s: %s", o.Until.UTC().Format(time.RFC3339), o.By, o.Reason)
			add(levelNotice, "limiter", l.Name, text, o.Since, "limiters")
		}
	}
	for i := range snap.Pipelines {
		s.addPipelineTrouble(snap, &snap.Pipelines[i], add)
	}
	if snap.JobsError != "" {
		add(levelError, "jobs", "throttled jobs", snap.JobsError, s.seenSince(snap.Time, "jobs", ""), "jobs")
	}
	s.forgetSince(snap.Time)
	slices.SortStableFunc(all, func(a, b trouble) int { return cmp.Compare(b.Level, a.Level) })
	snap.Trouble = all
}

func (s *sampler) addPipelineTrouble(snap *snapshot, p *pipelineState, add func(l level, what, name, text string, since time.Time, page string)) {
	if p.Error != "" {
		add(levelError, "pipeline", p.Name, "was not reloaded, version "+fmt.Sprint(p.Version)+" stays: "+p.Error, p.LastReload, "pipelines")
	}
	if p.Draining > 0 {
		since := s.seenSince(snap.Time, "draining", p.Name)
		if snap.Time.Sub(since) >= 30*time.Second {
			add(levelNotice, "pipeline", p.Name, fmt.Sprintf("%d replaced versions still run executions", p.Draining), since, "pipelines")
		}
	}
	if p.Note != "" {
		add(levelNotice, "pipeline", p.Name, p.Note, s.seenSince(snap.Time, "pipeline note", p.Name), "pipelines")
	}
	for _, e := range p.Events {
		if e.Rate == 0 || strings.HasPrefix(e.Name, "OnCircuit") {
			continue
		}
		if (e.Name == eventRejected || e.Name == eventShadowRejected) && limiterTold(snap, p.Name) {
			continue // the line of the limiter says it
		}
		text := fmt.Sprintf("%s%s %s/s%s", prefixedBy(e.Strategy, ": "), e.Name, rateText(e.Rate), prefixed(", the last: ", e.Text))
		add(levelWarning, "pipeline", p.Name, text, e.since, "pipelines")
	}
}

// limiterTold reports whether a limiter of the pipeline rejects and has a line of its own.
func limiterTold(snap *snapshot, name string) bool {
	return slices.ContainsFunc(snap.Limiters, func(l limiterState) bool {
		return orZero(l.RejectedRate) > 0 && slices.Contains(l.Pipelines, name)
	})
}

// seenSince returns when a trouble was first seen. It is forgotten when it is not seen in a snapshot.
func (s *sampler) seenSince(now time.Time, what, name string) time.Time {
	key := what + "\x00" + name
	first, ok := s.since[key]
	if !ok {
		first = now
		s.since[key] = now
	}
	s.seen[key] = now
	return first
}

// forgetSince forgets what was not seen in the snapshot of that time.
func (s *sampler) forgetSince(now time.Time) {
	for key, last := range s.seen {
		if !last.Equal(now) {
			delete(s.seen, key)
			delete(s.since, key)
		}
	}
}

func fileTrouble(f fileState) string {
	in := "nothing of it is in force"
	if !f.LastLoad.IsZero() {
		in = "what was loaded at " + f.LastLoad.Format(time.RFC3339) + " stays in force"
	}
	return in + ": " + f.Error
}

func orElse(text, cause string) string { return text + prefixed(": ", cause) }

// prefixed returns text after prefix, or nothing if there is no text.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// prefixedBy returns text before suffix, or nothing if there is no text.
func prefixedBy(text, suffix string) string {
	if text == "" {
		return ""
	}
	return text + suffix
}

func summarize(snap *snapshot) *summary {
	sum := &summary{
		Pipelines: len(snap.Pipelines), Limiters: len(snap.Limiters), Circuits: len(snap.Circuits), Stores: len(snap.Stores),
		Granted: new(0.0), Rejected: new(0.0),
	}
	rejecting := 0
	for _, p := range snap.Pipelines {
		sum.Running += p.Running
	}
	for _, l := range snap.Limiters {
		if l.Override != nil {
			sum.Overrides++
		}
		sum.Granted = addRate(sum.Granted, l.GrantedRate)
		if l.Shadow {
			continue
		}
		sum.Rejected = addRate(sum.Rejected, l.RejectedRate)
		if orZero(l.RejectedRate) > 0 {
			rejecting++
		}
	}
	if sum.Rejected != nil {
		sum.Rejecting = &rejecting
	}
	for _, c := range snap.Circuits {
		if c.State != "closed" {
			sum.Open++
		}
	}
	for _, st := range snap.Stores {
		if !st.Available {
			sum.Away++
		}
	}
	return sum
}

// addRate returns the sum of two rates, or nil if one is not known.
func addRate(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return new(*a + *b)
}

// figures returns the figures of a circuit without its state: "3 of 10 failed, 2 failed in a row".
func figures(st circuitbreaker.Statistics) string {
	_, rest, _ := strings.Cut(st.String(), ", ")
	return rest
}
