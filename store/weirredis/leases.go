package weirredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/store/backend"
)

// what is asked about leases.
type what string

const (
	toHold    what = "hold"
	toRenew   what = "renew"
	toRelease what = "release"
)

// Acquire gives leases. What is rejected of a Hold that is Waiting makes the releases of the next time known
// to all who listen: until half a minute or more after the end of the lease that is the first to
// end. Without that, a Release tells nobody, as every instance would have to read it.
//
// A lease with the ID of one that has not ended is that one, put off. With more than 64 leases of a key, NextEnd
// may be too early, once until that time has come.
func (b *Backend) Acquire(ctx context.Context, holds []*backend.LeaseRequest) error {
	return b.lease(ctx, toHold, b.scripts.hold, holds)
}

// Renew puts off the end of leases, under whatever definition.
func (b *Backend) Renew(ctx context.Context, holds []*backend.LeaseRequest) error {
	return b.lease(ctx, toRenew, b.scripts.renew, holds)
}

// Release gives leases back, under whatever definition.
func (b *Backend) Release(ctx context.Context, holds []*backend.LeaseRequest) error {
	return b.lease(ctx, toRelease, b.scripts.release, holds)
}

// mostTogether bounds how many leases one script deals with: it must not keep the server from others for long.
const mostTogether = 128

func (b *Backend) lease(ctx context.Context, what what, s script, holds []*backend.LeaseRequest) error {
	var calls []call
	var groups [][]*backend.LeaseRequest
	for rest := sound(what, holds); len(rest) > 0; {
		n := together(rest)
		calls = append(calls, b.leaseCall(what, s, rest[:n]))
		groups = append(groups, rest[:n])
		rest = rest[n:]
	}
	if err := b.runEach(ctx, calls); err != nil {
		return wrap(ctx, string(what), err)
	}
	for i := range calls {
		err := calls[i].cmd.Err()
		if err == nil {
			err = readLeases(what, groups[i], calls[i].cmd.Val())
		}
		if err != nil {
			for _, h := range groups[i] {
				h.Outcome, h.Err = outcomeOf(err), wrap(ctx, string(what), err)
			}
		}
	}
	return nil
}

// sound returns the holds that can be asked about; the others fail, each by itself.
func sound(what what, holds []*backend.LeaseRequest) []*backend.LeaseRequest {
	good := holds
	for i, h := range holds {
		if err := checkHold(what, h); err != nil {
			h.Outcome, h.Err = backend.Failed, fmt.Errorf("weirredis: %s: %w", what, err)
			if len(good) == len(holds) {
				good = holds[:i:i]
			}
		} else if len(good) < len(holds) {
			good = append(good, h)
		}
	}
	return good
}

func (b *Backend) runEach(ctx context.Context, calls []call) error {
	switch len(calls) {
	case 0:
		return nil
	case 1:
		if _, err := b.run(ctx, &calls[0]); !ofTheKey(err) {
			return err
		}
		return nil
	}
	return b.runAll(ctx, calls)
}

// together is how many of the first holds are of the same key.
func together(holds []*backend.LeaseRequest) int {
	n := 1
	for n < len(holds) && n < mostTogether && holds[n].Key == holds[0].Key && holds[n].Definition == holds[0].Definition {
		n++
	}
	return n
}

func (b *Backend) leaseCall(what what, s script, holds []*backend.LeaseRequest) call {
	d, key := holds[0].Definition, holds[0].Key
	at := b.places(d.Name).of(key)
	args := make([]any, 0, 6+2*len(holds))
	args = append(args, "evalsha", s.sha, "1", at.start+leasesMark+key)
	switch what {
	case toHold:
		args[2] = "2"
		args = append(args, at.def, doubles(float64(d.Version), float64(d.Permits)))
	case toRelease:
		args = append(args, b.names.channel())
	}
	for _, h := range holds {
		args = append(args, h.ID, leaseNumbers(what, h))
	}
	return call{script: s, args: args}
}

// leaseNumbers are the numbers of one lease that the script needs.
func leaseNumbers(what what, h *backend.LeaseRequest) string {
	ttl := float64(min(h.TTL, longest))
	switch what {
	case toRenew:
		return doubles(float64(h.Fence), ttl)
	case toRelease:
		return doubles(float64(h.Fence))
	}
	var waiting float64
	if h.Waiting && h.Permits > 0 {
		waiting = 1
	}
	return doubles(float64(max(min(h.Permits, tooMany), 0)), max(ttl, 0), waiting)
}

// longest is a hundred years in µs: a lease of more is one of so much.
const longest = 100 * 365 * 24 * 3600 * 1_000_000

func checkHold(what what, h *backend.LeaseRequest) error {
	switch d := h.Definition; {
	case d == nil:
		return errors.New("no definition")
	case d.Version > exact || d.Version < 0 || d.Permits > exact:
		return fmt.Errorf("limiter %q: the definition has a number that is out of range", d.Name)
	case what == toHold && h.Permits <= 0:
		return nil
	case h.ID == "":
		return fmt.Errorf("limiter %q: a lease without an ID", d.Name)
	case h.TTL <= 0 && what != toRelease:
		return fmt.Errorf("limiter %q: a lease for %d µs", d.Name, h.TTL)
	}
	return nil
}

// readLeases takes the answers out of what a script has answered.
func readLeases(what what, holds []*backend.LeaseRequest, answer string) error {
	if what != toHold {
		if len(answer) != len(holds) {
			return errAnswer
		}
		for i, h := range holds {
			h.Outcome, h.OK = backend.Decided, answer[i] == '1'
		}
		return nil
	}
	if len(answer) == 8 {
		version, err := newerVersion(answer)
		for _, h := range holds {
			h.Outcome, h.Version, h.OK = backend.OutdatedDefinition, version, false
		}
		return err
	}
	const size = 3 * 8
	if len(answer) != size*len(holds) {
		return errAnswer
	}
	for i, h := range holds {
		h.Outcome, h.OK, h.Fence, h.NextExpiry = backend.Decided, number(answer, size*i) == 1, 0, 0
		h.InUse = number(answer, size*i+8)
		if third := number(answer, size*i+16); h.OK {
			h.Fence = third
		} else {
			h.NextExpiry = third
		}
	}
	return nil
}
