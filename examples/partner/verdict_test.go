package main

import (
	"strings"
	"testing"
	"time"
)

// grant is a successful request that was sent, ran, and was answered at these times.
func grant(sent, ran, answered time.Duration) sample {
	return sample{user: "ann", status: 200, sent: sent, now: time.Unix(0, 0).Add(ran), answered: answered}
}

func TestJudge(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		grants []sample
		want   userVerdict
	}{
		"none": {nil, userVerdict{Allowed: 1}},
		"one":  {[]sample{grant(0, s, s)}, userVerdict{Granted: 1, Allowed: 1, Seconds: 1}},
		"at the interval": {
			[]sample{grant(0, 0, s/10), grant(2*s, 2*s, 2*s+s/10)},
			userVerdict{Granted: 2, Allowed: 2, Seconds: 2, Closest: 2.1, ClosestRuns: 2},
		},
		"a tick early, which the bucket can be": {
			[]sample{grant(0, 0, 0), grant(2*s, 2*s-tick, 2*s-tick)},
			userVerdict{Granted: 2, Allowed: 2, Seconds: 1.999, Closest: 1.999, ClosestRuns: 1.999},
		},
		"earlier": {
			[]sample{grant(0, 0, 0), grant(s, 2*s-2*tick, 2*s-tick)},
			userVerdict{Granted: 2, Allowed: 1, Seconds: 1.998, Excess: 1, Closest: 1.999, ClosestRuns: 1.998},
		},
		// The first is granted in time but its answer is late, so it proves nothing.
		"close runs": {
			[]sample{grant(0, 2*s-s/2, 2*s), grant(2*s, 2*s, 2*s+s/2)},
			userVerdict{Granted: 2, Allowed: 2, Seconds: 2, Closest: 2.5, ClosestRuns: 0.5},
		},
		"close, but not more than the limit from the start": {
			[]sample{grant(4*s, 4*s, 4*s), grant(5*s, 5*s, 5*s)},
			userVerdict{Granted: 2, Allowed: 3, Seconds: 5, Closest: 1, TooClose: 1, ClosestRuns: 1},
		},
		"too many at first, by answers that are late, and then none": {
			[]sample{grant(0, s/10, 3*s), grant(0, s/5, 3*s), grant(0, 9*s, 9*s)},
			userVerdict{Granted: 3, Allowed: 5, Seconds: 9, Excess: 1, Closest: 3, ClosestRuns: 0.1},
		},
	} {
		c.want.User = "ann"
		others := []sample{{user: "bob", status: 200, now: time.Unix(1, 0)}, {user: "ann", status: 429}, {user: "ann", status: 201, post: true}}
		if got := judge("ann", successes(append(others, c.grants...))["ann"], time.Unix(0, 0)); got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

func TestVerdict_ManyUsers(t *testing.T) {
	r := &verdict{Granted: 30, Allowed: 40}
	for range maxUsersPrinted + 3 {
		r.Users = append(r.Users, userVerdict{User: "ann", Granted: 3, Allowed: 4, Seconds: 6.5, Closest: 2.004})
	}
	var out strings.Builder
	r.print(&out)
	row := "\nann                       3          4      6.5 s         2.004 s"
	if strings.Count(out.String(), row) != maxUsersPrinted || !strings.Contains(out.String(), "\nall 13                   30         40\n") {
		t.Error(out.String())
	}
}
