package weirredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/store/backend"
)

// A leaseOp is an operation on leases.
type leaseOp string

const (
	acquireLease leaseOp = "acquire"
	renewLease   leaseOp = "renew"
	releaseLease leaseOp = "release"
)

// Acquire implements [backend.Backend]. After a request with Waiting was rejected, releases of the key send notices.
// They stop half a minute or more after the time at which the first lease ends. Other releases send none, because every
// instance would have to read them.
//
// If a key has more than 64 leases, NextExpiry can be too early: the end that a lease had before it was renewed
// or released.
func (b *Backend) Acquire(ctx context.Context, requests []*backend.LeaseRequest) error {
	return b.lease(ctx, acquireLease, b.scripts.acquire, requests)
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, requests []*backend.LeaseRequest) error {
	return b.lease(ctx, renewLease, b.scripts.renew, requests)
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, requests []*backend.LeaseRequest) error {
	return b.lease(ctx, releaseLease, b.scripts.release, requests)
}

// maxLeasesPerCall bounds one run of a script, which blocks the server.
const maxLeasesPerCall = 128

func (b *Backend) lease(ctx context.Context, op leaseOp, s script, requests []*backend.LeaseRequest) error {
	var calls []call
	var groups []leaseGroup
	for rest := backend.Valid(requests, "weirredis: "+string(op), op.check); len(rest) > 0; {
		n := sameKeyPrefix(rest)
		calls = append(calls, b.places(rest[0].Definition.Name).leaseCall(op, s, rest[:n]))
		groups = append(groups, rest[:n])
		rest = rest[n:]
	}
	return runEach(ctx, b.servers, string(op), groups, calls, func(g leaseGroup, c *call) error { return readLeases(op, g, c.cmd.Val()) })
}

// A leaseGroup is requests of the same key, which are one run of a script.
type leaseGroup []*backend.LeaseRequest

// Fail sets the outcome of all.
func (g leaseGroup) Fail(outcome backend.Outcome, err error) {
	for _, r := range g {
		r.Fail(outcome, err)
	}
}

// sameKeyPrefix returns how many of the first requests are of the same key.
func sameKeyPrefix(requests []*backend.LeaseRequest) int {
	n := 1
	for n < len(requests) && n < maxLeasesPerCall && requests[n].Key == requests[0].Key && requests[n].Definition == requests[0].Definition {
		n++
	}
	return n
}

func (l *limiterPlaces) leaseCall(op leaseOp, s script, requests []*backend.LeaseRequest) call {
	d, key := requests[0].Definition, requests[0].Key
	at := l.of(key)
	args := make([]any, 0, 6+2*len(requests))
	args = append(args, "evalsha", s.sha, "1", at.start+leasesMark+key)
	switch op {
	case acquireLease:
		args[2] = "2"
		args = append(args, at.def, doubles(float64(d.Version), float64(d.Permits)))
	case releaseLease:
		args = append(args, l.names.channel())
	}
	for _, r := range requests {
		args = append(args, r.ID, leaseNumbers(op, r))
	}
	return call{script: s, args: args}
}

// leaseNumbers returns the numbers that the script needs for one lease.
func leaseNumbers(op leaseOp, r *backend.LeaseRequest) string {
	ttl := float64(min(r.TTL, maxTTL))
	switch op {
	case renewLease:
		return doubles(float64(r.Fence), ttl)
	case releaseLease:
		return doubles(float64(r.Fence))
	}
	var waiting float64
	if r.Waiting && r.Permits > 0 {
		waiting = 1
	}
	return doubles(float64(max(min(r.Permits, moreThanAny), 0)), max(ttl, 0), waiting)
}

// maxTTL is 100 years in µs. A longer TTL is shortened to maxTTL.
const maxTTL = 100 * 365 * 24 * 3600 * 1_000_000

// check returns what is wrong with a request.
func (op leaseOp) check(r *backend.LeaseRequest) error {
	switch d := r.Definition; {
	case d == nil:
		return errors.New("no definition")
	case d.Version > maxExact || d.Version < 0 || d.Permits > maxExact:
		return fmt.Errorf("limiter %q: the definition has a number that is out of range", d.Name)
	case op == acquireLease && r.Permits <= 0:
		return nil
	case r.ID == "":
		return fmt.Errorf("limiter %q: a lease without an ID", d.Name)
	case r.TTL <= 0 && op != releaseLease:
		return fmt.Errorf("limiter %q: a lease for %d µs", d.Name, r.TTL)
	}
	return nil
}

// readLeases sets the answers from the reply of a script.
func readLeases(op leaseOp, requests []*backend.LeaseRequest, answer string) error {
	if op != acquireLease {
		if len(answer) != len(requests) {
			return errAnswer
		}
		for i, r := range requests {
			r.Outcome, r.OK = backend.Decided, answer[i] == '1'
		}
		return nil
	}
	if answer == "" {
		return errAnswer
	}
	format, answer := answer[0], answer[1:]
	if format == 'N' && len(answer) == 8 {
		version, err := newerVersion(answer)
		for _, r := range requests {
			r.Outcome, r.Version, r.OK = backend.OutdatedDefinition, version, false
		}
		return err
	}
	const size = 3 * 8
	if format != 'L' || len(answer) != size*len(requests) {
		return errAnswer
	}
	for i, r := range requests {
		r.Outcome, r.OK, r.Fence, r.NextExpiry = backend.Decided, number(answer, size*i) == 1, 0, 0
		r.InUse = number(answer, size*i+8)
		if third := number(answer, size*i+16); r.OK {
			r.Fence = third
		} else {
			r.NextExpiry = third
		}
	}
	return nil
}
