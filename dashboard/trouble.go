package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The events of rate limiters that reject, or would reject; see strategies/ratelimit.
const (
	eventRejected       = "OnRateLimiterRejected"
	eventShadowRejected = "OnRateLimiterShadowRejected"
)

// troubles collects what an operator should look at.
type troubles struct {
	now time.Time
	all []trouble
}

func (t *troubles) add(l level, what, name string, since time.Time, text string) {
	t.all = append(t.all, trouble{Level: l, What: what, Name: name, Text: text, Since: utc(since)})
}

// addTrouble fills in the trouble of a snapshot, the worst first.
func (snap *snapshot) addTrouble() {
	t := &troubles{now: snap.Time, all: []trouble{}}
	for _, st := range snap.Stores {
		if !st.Available {
			t.add(st.level(), "store", st.Name, st.Since, "is away: "+st.Error)
		}
	}
	for _, f := range snap.Files {
		switch {
		case f.Error == "":
		case f.LastLoad.IsZero():
			t.add(levelError, "file", f.Path, f.LastAttempt, "nothing of it is in force: "+f.Error)
		default:
			t.add(levelError, "file", f.Path, f.LastAttempt, "what was loaded at "+f.LastLoad.Format(time.RFC3339)+" stays in force: "+f.Error)
		}
	}
	for _, c := range snap.Circuits {
		if text := circuitTroubles[c.State]; text != "" {
			t.add(c.Level, "circuit", c.Source, c.Since, text+prefixed(", by ", c.IsolatedBy)+prefixed(": ", c.Cause))
		}
	}
	for i := range snap.Limiters {
		t.addLimiter(&snap.Limiters[i])
	}
	for i := range snap.Pipelines {
		t.addPipeline(snap, &snap.Pipelines[i])
	}
	if snap.JobsError != "" {
		t.add(levelError, "jobs", "throttled jobs", time.Time{}, snap.JobsError)
	}
	slices.SortStableFunc(t.all, func(a, b trouble) int { return cmp.Compare(b.Level, a.Level) })
	snap.Trouble = t.all
}

// circuitTroubles are what is said of circuits that are not closed, by state.
var circuitTroubles = map[string]string{
	"open": "is open", "isolated": "is isolated by hand", "half_open": "is half open: the next calls decide whether it closes",
}

func (t *troubles) addLimiter(l *limiterState) {
	if orZero(l.RejectedRate) > 0 {
		text := "rejects " + rateText(*l.RejectedRate) + "/s"
		switch {
		case l.Shadow:
			text = "would reject " + rateText(*l.RejectedRate) + "/s, and is in shadow mode"
		case l.GrantedRate != nil:
			text += " and grants " + rateText(*l.GrantedRate) + "/s"
		}
		t.add(l.Level, "limiter", l.Name, l.Since, text)
	}
	if l.Note != "" {
		t.add(levelNotice, "limiter", l.Name, time.Time{}, l.Note)
	}
	if o := l.Override; o != nil {
		t.add(levelNotice, "limiter", l.Name, o.Since, fmt.Sprintf("has other limits than the configuration until %s, by %s: %s", o.Until.Format(time.RFC3339), o.By, o.Reason))
	}
}

func (t *troubles) addPipeline(snap *snapshot, p *pipelineState) {
	if p.Error != "" {
		t.add(levelError, "pipeline", p.Name, p.LastReload, fmt.Sprintf("was not reloaded, version %d stays: %s", p.Version, p.Error))
	}
	if p.Draining > 0 && t.now.Sub(p.Built) >= 30*time.Second {
		t.add(levelNotice, "pipeline", p.Name, p.Built, fmt.Sprintf("%d replaced versions still run executions", p.Draining))
	}
	if p.Note != "" {
		t.add(levelNotice, "pipeline", p.Name, time.Time{}, p.Note)
	}
	for _, e := range p.Events {
		told := strings.HasPrefix(e.Name, "OnCircuit") || (e.Name == eventRejected || e.Name == eventShadowRejected) && limiterTold(snap, p.Name)
		if e.Rate > 0 && !told {
			t.add(levelWarning, "pipeline", p.Name, e.since, strings.TrimPrefix(e.Strategy+": "+e.Name, ": ")+" "+rateText(e.Rate)+"/s"+prefixed(", the last: ", e.Text))
		}
	}
}

// limiterTold reports whether a limiter of the pipeline rejects and has a line of its own.
func limiterTold(snap *snapshot, name string) bool {
	return slices.ContainsFunc(snap.Limiters, func(l limiterState) bool {
		return orZero(l.RejectedRate) > 0 && slices.Contains(l.Pipelines, name)
	})
}

func summarize(snap *snapshot) *summary {
	sum := &summary{
		Pipelines: len(snap.Pipelines), Limiters: len(snap.Limiters), Circuits: len(snap.Circuits), Stores: len(snap.Stores),
		Granted: new(0.0), Rejected: new(0.0),
	}
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
			sum.Rejecting++
		}
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

// markShadow notes which limiters reject only in shadow mode: their pipelines report no other rejection, and as many of
// these as the limiter rejects. A policy that is not in the pipelines can enforce the same limiter. The two rates are read
// one after the other, so they may differ a little.
func (snap *snapshot) markShadow() {
	rates := func(l *limiterState) (rejected, shadow float64) {
		for _, p := range snap.Pipelines {
			if !slices.Contains(l.Pipelines, p.Name) {
				continue
			}
			for _, e := range p.Events {
				switch e.Name {
				case eventRejected:
					rejected += e.Rate
				case eventShadowRejected:
					shadow += e.Rate
				}
			}
		}
		return rejected, shadow
	}
	for i := range snap.Limiters {
		l := &snap.Limiters[i]
		if rejected, shadow := rates(l); orZero(l.RejectedRate) > 0 && rejected == 0 && shadow >= 0.9*orZero(l.RejectedRate) {
			l.Shadow, l.Level = true, levelNotice
		}
	}
}
