// Package jobsdashboard shows throttled jobs on a dashboard: the limiters with their holders and waiters, when the next
// slot is free, and, for those whom the dashboard authorizes, a button that releases a slot.
//
//	d, err := dashboard.New(dashboard.Options{Registry: r, Jobs: jobsdashboard.New(throttler)})
package jobsdashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/jobs"
)

// New returns what [dashboard.Options.Jobs] needs. Its methods query the database of t. It is safe for concurrent use. If
// t is nil, New returns nil, and the dashboard has no part for jobs.
func New(t *jobs.Throttler) dashboard.Jobs {
	if t == nil {
		return nil
	}
	return adapter{t}
}

type adapter struct{ throttler *jobs.Throttler }

func (a adapter) Limiters(ctx context.Context) ([]dashboard.JobLimiter, error) {
	infos, err := a.throttler.Limiters(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]dashboard.JobLimiter, len(infos))
	for i, info := range infos {
		all[i] = dashboard.JobLimiter{
			JobRef: fromRef(info.Ref), Options: optionsText(info.Options),
			Keys: info.Keys, Holders: info.Holders, Waiters: info.Waiters,
		}
	}
	return all, nil
}

func (a adapter) Keys(ctx context.Context, limiter dashboard.JobRef, after string, n int) ([]string, error) {
	return a.throttler.Keys(ctx, toRef(limiter), after, n)
}

func (a adapter) Inspect(ctx context.Context, limiter dashboard.JobRef) (dashboard.JobState, error) {
	info, err := a.throttler.Inspect(ctx, toRef(limiter))
	if err != nil {
		return dashboard.JobState{}, err
	}
	s := dashboard.JobState{
		JobRef: fromRef(info.Ref), Limit: info.Limit, Used: info.Used, Reserved: info.Reserved, Waiting: info.Waiting, Next: info.Next,
		Holders: make([]dashboard.JobHolder, len(info.Holders)), Waiters: make([]dashboard.JobWaiter, len(info.Waiters)),
	}
	for i, h := range info.Holders {
		s.Holders[i] = dashboard.JobHolder{Job: h.Job, Owner: h.Owner, Since: h.Since, Until: h.Until}
	}
	for i, w := range info.Waiters {
		s.Waiters[i] = dashboard.JobWaiter{Job: w.Job, Since: w.Since}
		if !w.InWorker { // such a job does not come back, but goes on when it has the slot
			s.Waiters[i].Wake = w.Wake
		}
	}
	return s, nil
}

func (a adapter) Release(ctx context.Context, limiter dashboard.JobRef, holder dashboard.JobHolder) (released bool, err error) {
	return a.throttler.Release(ctx, toRef(limiter), jobs.Holder{Job: holder.Job, Owner: holder.Owner})
}

func toRef(r dashboard.JobRef) jobs.Ref {
	return jobs.Ref{Type: jobs.Type(r.Type), Name: r.Name, Key: r.Key}
}

func fromRef(r jobs.Ref) dashboard.JobRef {
	return dashboard.JobRef{Type: string(r.Type), Name: r.Name, Key: r.Key}
}

// optionsText returns stored options in a form for people, such as "interval 1m0s, limit 5". Options that it cannot read,
// such as those of a newer program, it returns as they are.
func optionsText(options json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(options, &fields) != nil {
		return string(options)
	}
	texts := make([]string, 0, len(fields))
	for name, value := range fields {
		var d time.Duration
		if name == "interval" && json.Unmarshal(value, &d) == nil {
			value = []byte(d.String())
		}
		texts = append(texts, fmt.Sprintf("%s %s", name, bytes.TrimSpace(value)))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
