package limiter

// A LeaseOwner takes back the leases that a [Granter] made for it. n is the number of
// permits of the lease, tag what it was made with. Both methods are called from any
// goroutine.
type LeaseOwner interface {
	// Release is called for every Release of every copy of the lease: of those the
	// owner counts the first.
	Release(n int, tag int64)
	// Refund undoes the grant as if it had not been; see [Lease.Refund]. It is called at
	// most once for a grant. A Release may follow, and does nothing.
	Refund(n int, tag int64)
}

// A LeaseAdjuster is a [LeaseOwner] that can be told what the work has really cost.
type LeaseAdjuster interface {
	// Adjust makes a grant of n permits one of cost permits and returns the tag that the
	// lease has from then on; see [Lease.Adjust]. It tells whether it could.
	Adjust(n int, tag int64, cost int) (newTag int64, ok bool)
}

// A LeaseCounter is a [LeaseOwner] that knows how many permits there were left right after a
// grant.
type LeaseCounter interface {
	Remaining(n int, tag int64) (left int64, ok bool)
}

// A Granter makes leases for a limiter written elsewhere that grants often: unlike
// [GrantedRefundable], a lease takes no allocation. Make one for each owner, with
// [NewGranter]; the zero Granter is not usable.
type Granter struct{ by LeaseOwner }

// NewGranter returns a Granter of leases that go back to by.
func NewGranter(by LeaseOwner) *Granter { return &Granter{by: by} }

// Grant returns an acquired lease of n permits; a negative n counts as 0. The tag is
// handed to the owner with whatever becomes of the lease.
func (g *Granter) Grant(n int, tag int64) Lease { return Lease{owner: g, n: max(n, 0), tag: tag} }

func (g *Granter) release(n int, tag int64) { g.by.Release(n, tag) }
func (g *Granter) refund(n int, tag int64)  { g.by.Refund(n, tag) }

func (g *Granter) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	a, ok := g.by.(LeaseAdjuster)
	if !ok {
		return g, tag, false
	}
	tag, ok = a.Adjust(n, tag, cost)
	return g, tag, ok
}

// Remaining is how many permits were left right after the decision, for limiters that know
// it without being asked again, as those of package store do. Where ok is false, ask the
// limiter's Statistics.
func (l Lease) Remaining() (n int64, ok bool) {
	if !l.Acquired() {
		return int64(max(knownRemaining-l.n, 0)), l.n <= knownRemaining
	}
	o := l.owner
	if m := l.metadata(); m != nil {
		o = m.owner
	}
	if g, is := o.(*Granter); is {
		if c, is := g.by.(LeaseCounter); is {
			return c.Remaining(l.n, l.tag)
		}
	}
	return 0, false
}
