package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
)

// conclude prints the counts, and returns an error if they do not agree.
func conclude(j *journal, a *api, tallies []*tally) error {
	took := time.Since(j.began)
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()

	j.note("")
	j.note("                  requests  admitted  rejected  retried  came through")
	worked := 0
	for _, t := range tallies {
		name := t.user.name
		admitted, rejected := a.admitted[name], a.rejected[name]
		refused, retried, through := int(t.refused.Load()), int(t.retried.Load()), int(t.through.Load())
		j.note("%-16s  %8d  %8d  %8d  %7d  %12d", name+", "+t.user.plan, t.requests, admitted, rejected, retried, through)
		worked += admitted

		check(through == t.requests, "%s: %d requests, but %d came through", name, t.requests, through)
		check(admitted == t.requests, "%s: %d requests, but %d were admitted", name, t.requests, admitted)
		check(rejected > 0, "%s: sent more than the plan allows, but nothing was rejected", name)
		check(rejected == refused, "%s: %d rejections, but the client has seen %d", name, rejected, refused)
		check(retried == rejected, "%s: %d rejections, but %d retries", name, rejected, retried)
		o := plans[t.user.plan]
		most := o.TokenLimit + o.TokensPerPeriod*int(took/o.ReplenishmentPeriod)
		check(admitted <= most, "%s: %d were admitted in %v, the plan allows %d", name, admitted, took, most)
	}

	j.note("")
	for _, t := range tallies {
		s, err := a.buckets[t.user.plan].Statistics(t.user.name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		j.note("the bucket of %s granted %d leases and rejected %d", t.user.name, s.SuccessfulLeases, s.FailedLeases)
		check(agree(s, a.admitted[t.user.name], a.rejected[t.user.name]), "the bucket of %s has other counts: %+v", t.user.name, s)
	}
	s := a.slots.Statistics()
	j.note("the %d slots granted %d leases and rejected %d: a request that a bucket rejects gives its slot back and does not count",
		slots, s.SuccessfulLeases, s.FailedLeases)
	check(agree(s, worked, 0), "%d requests were worked on, but the slots have other counts: %+v", worked, s)
	check(s.AvailablePermits == slots, "%d slots of %d are free", s.AvailablePermits, slots)
	check(a.busiest <= slots, "%d requests were worked on at a time", a.busiest)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	j.note("never more than %d requests were worked on at a time", slots)
	j.note("all requests came through in the end, and all counts agree")
	return nil
}

// agree reports whether a limiter has the same counts, and no request waits.
func agree(s limiter.Statistics, granted, rejected int) bool {
	return s.SuccessfulLeases == int64(granted) && s.FailedLeases == int64(rejected) && s.QueuedPermits == 0
}
