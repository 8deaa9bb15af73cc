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
	var groups [][]*backend.LeaseRequest
	for rest := validRequests(op, requests); len(rest) > 0; {
		n := sameKeyPrefix(rest)
		calls = append(calls, b.leaseCall(op, s, rest[:n]))
		groups = append(groups, rest[:n])
		rest = rest[n:]
	}
	if err := b.runEach(ctx, calls); err != nil {
		return wrap(ctx, string(op), err)
	}
	for i := range calls {
		err := calls[i].cmd.Err()
		if err == nil {
			err = readLeases(op, groups[i], calls[i].cmd.Val())
		}
		if err != nil {
			for _, r := range groups[i] {
				r.Outcome, r.Err = outcomeOf(err), wrap(ctx, string(op), err)
			}
		}
	}
	return nil
}

// validRequests returns the valid requests, and sets the outcome of the others.
func validRequests(op leaseOp, requests []*backend.LeaseRequest) []*backend.LeaseRequest {
	good := requests
	for i, r := range requests {
		if err := checkLease(op, r); err != nil {
			r.Outcome, r.Err = backend.Failed, fmt.Errorf("weirredis: %s: %w", op, err)
			if len(good) == len(requests) {
				good = requests[:i:i] // a full slice, so that append copies and the caller's slice stays as it is
			}
		} else if len(good) < len(requests) {
			good = append(good, r)
		}
	}
	return good
}

// sameKeyPrefix returns how many of the first requests are of the same key.
func sameKeyPrefix(requests []*backend.LeaseRequest) int {
	n := 1
	for n < len(requests) && n < maxLeasesPerCall && requests[n].Key == requests[0].Key && requests[n].Definition == requests[0].Definition {
		n++
	}
	return n
}

func (b *Backend) leaseCall(op leaseOp, s script, requests []*backend.LeaseRequest) call {
	d, key := requests[0].Definition, requests[0].Key
	at := b.places(d.Name).of(key)
	args := make([]any, 0, 6+2*len(requests))
	args = append(args, "evalsha", s.sha, "1", at.start+leasesMark+key)
	switch op {
	case acquireLease:
		args[2] = "2"
		args = append(args, at.def, doubles(float64(d.Version), float64(d.Permits)))
	case releaseLease:
		args = append(args, b.names.channel())
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

func checkLease(op leaseOp, r *backend.LeaseRequest) error {
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
