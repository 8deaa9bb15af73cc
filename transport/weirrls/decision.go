package weirrls

import (
	"context"
	"math"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// A decision is one request. Its methods are called in this order:
//
//	prepare   finds the limit of each descriptor
//	ask       asks the limits
//	decide    decides about the request by their answers
//	settle    gives back what a rejected request has taken
//	response  makes the answer
//	report    tells the Listener
//	end       releases the leases
type decision struct {
	ctx     context.Context
	asking  context.Context // for limits: ctx, or that of beforeDeadline
	service *Service
	rules   *rulesInForce
	domain  *domain // nil: not known
	request *ratelimitv3.RateLimitRequest

	checks []check // one for each descriptor
	buf    []byte  // memory for names and keys
	now    int64   // in seconds since 1970, if a check has a span

	listening, measuring bool
	rejected             bool // by a limit in this process, before the slow ones are asked
	over                 bool // the overall code
}

// A check is one descriptor of a request.
type check struct {
	kind     checkKind
	rule     *rule  // nil for an override
	limit    *limit // nil: no limit applies
	shares   bool   // ShareThreshold changes the key
	hits     uint64
	negative bool // the hits are given back

	key string // of the counter, or of Partitioned

	// An exact limit.
	lease   limiter.Lease
	rest    limiter.Lease // what OverrunRest took
	level   limiter.Level // if leveled
	leveled bool

	// A window or an override.
	span       timeSpan
	allowed    uint32
	unit       protoUnit
	multiplier uint32 // 0: none
	sum        int64
	counted    bool // the hits are counted

	answer   answer
	asked    bool          // the limiter was asked
	refused  bool          // the limiter has refused the hits
	refunded bool          // what it took was given back
	err      error         // why there is no decision, or nil
	took     time.Duration // by the limiter, if the request is measured
}

// A checkKind says what limits a descriptor.
type checkKind uint8

const (
	noLimit   checkKind = iota // no rule, or its limit is replaced
	unlimited                  // Limit.Unlimited
	exact                      // Limit.Limiter or Limit.Partitioned
	window                     // Limit.Window
	override                   // a limit that the request brings with it
)

// An answer is what a limit says about its descriptor.
type answer uint8

const (
	within     answer = iota // the hits are within the limit
	overLimit                // they are not
	failed                   // there was no decision, and the hits count as over the limit
	failedOpen               // there was no decision, and the hits count as within the limit
)

// over reports whether the limit is against the request.
func (c *check) over() bool { return c.answer == overLimit || c.answer == failed }

func newDecision(ctx context.Context, s *Service, r *ratelimitv3.RateLimitRequest) *decision {
	d := &decision{ctx: ctx, asking: ctx, service: s, request: r, rules: s.current.Load()}
	d.domain = d.rules.rules.domains[r.GetDomain()]
	d.listening, d.measuring = s.events.listens(ctx)
	d.checks = make([]check, len(r.GetDescriptors()))
	return d
}

// end releases the leases. If finished is false, a limiter or a listener has ended the goroutine: then nothing was
// answered, and what was taken is given back. Permits of windows and buckets stay taken after a Release.
func (d *decision) end(finished bool) {
	if !finished {
		d.over = true
		d.settle()
	}
	for i := range d.checks {
		d.checks[i].release()
	}
}

// prepare finds the limit of each descriptor.
func (d *decision) prepare() {
	replaces := false
	for i, descriptor := range d.request.GetDescriptors() {
		c := &d.checks[i]
		c.hits, c.negative = hitsOf(d.request, descriptor)
		if d.domain == nil {
			continue
		}
		if o := descriptor.GetLimit(); o != nil && d.prepareOverride(c, o) {
			continue
		}
		entries := descriptor.GetEntries()
		if c.rule, c.shares = d.domain.match(entries, &d.buf); c.rule == nil {
			continue
		}
		c.limit = c.rule.limit
		c.kind = c.limit.kind()
		replaces = replaces || len(c.limit.Replaces) > 0
	}
	if replaces {
		d.replace()
	}
	for i := range d.checks {
		d.prepareKey(&d.checks[i], d.request.GetDescriptors()[i].GetEntries())
	}
}

// kind returns what a check of the limit does.
func (l *limit) kind() checkKind {
	switch {
	case l.Unlimited:
		return unlimited
	case l.Window != nil:
		return window
	default:
		return exact
	}
}

// hitsOf returns the hits of a descriptor. negative reports whether they are given back.
func hitsOf(r *ratelimitv3.RateLimitRequest, d *common.RateLimitDescriptor) (hits uint64, negative bool) {
	hits = max(1, uint64(r.GetHitsAddend()))
	if own := d.GetHitsAddend(); own != nil {
		hits = own.GetValue()
	}
	return hits, hits > 0 && d.GetIsNegativeHits()
}

// replace removes the limits that others replace. A limit replaces others also if it is replaced itself.
func (d *decision) replace() {
	replaced := make(map[string]bool)
	for i := range d.checks {
		if l := d.checks[i].limit; l != nil {
			for _, name := range l.Replaces {
				replaced[name] = true
			}
		}
	}
	for i := range d.checks {
		if c := &d.checks[i]; c.limit != nil && c.kind != unlimited && replaced[c.limit.Name] {
			c.kind, c.limit = noLimit, nil
		}
	}
}

// prepareOverride makes c the check of a limit that the request brings with it. It returns false if the limit has no unit
// that is known, or is for more than a year: then the rules apply.
func (d *decision) prepareOverride(c *check, o *common.RateLimitDescriptor_RateLimitOverride) bool {
	proto := protoUnit(o.GetUnit())
	u, ok := unitOfProto(proto)
	if !ok {
		return false
	}
	seconds := secondsOf[u]
	if m := o.GetUnitMultiplier().GetValue(); m > 1 {
		c.multiplier = m
		seconds *= int64(m)
	}
	if seconds > maxSpan {
		c.multiplier = 0
		return false
	}
	c.kind, c.limit = override, d.domain.override
	c.allowed, c.unit = o.GetRequestsPerUnit(), proto
	c.span = spanAt(d.time(), seconds)
	return true
}

// time returns the present moment in seconds since 1970. It is the same for all descriptors of a request.
func (d *decision) time() int64 {
	if d.now == 0 {
		d.now = time.Now().Unix()
	}
	return d.now
}

// prepareKey finds the key of the counter, or of Partitioned.
func (d *decision) prepareKey(c *check, entries []*common.RateLimitDescriptor_Entry) {
	key := make([]byte, 0, 128)
	switch {
	case c.kind == window:
		w := c.limit.Window
		c.allowed, c.unit, c.span = w.RequestsPerUnit, protoUnits[w.Unit], spanAt(d.time(), secondsOf[w.Unit])
	case c.kind == override, c.kind == exact && c.limit.Partitioned != nil:
	default:
		return
	}
	if c.kind != exact { // the counters are those of all domains
		key = append(appendEscaped(key, d.domain.name, `\,`), ',')
	}
	if c.shares {
		key = d.domain.appendSharedKey(key, entries, &d.buf)
	} else {
		key = appendKey(key, entries)
	}
	c.key = bounded(key)
}

// decide decides about the request by the answers of its limits: it is over if an ordinary limit is, or if all limits with
// Quota are.
func (d *decision) decide() {
	ordinary, quotas, quotasOver := 0, 0, 0
	for i := range d.checks {
		c := &d.checks[i]
		isOver := c.over() && !c.limit.Shadow
		switch isQuota := d.isQuota(c); {
		case isQuota && isOver:
			quotas++
			quotasOver++
		case isQuota:
			quotas++
		case isOver:
			ordinary++
		}
	}
	d.over = ordinary > 0 || quotas > 0 && quotas == quotasOver
	if d.service.options.Shadow {
		d.over = false
	}
}

// isQuota reports whether c rejects only together with all other quotas of the request.
func (d *decision) isQuota(c *check) bool {
	return c.kind != unlimited && (d.service.options.Quota || c.limit != nil && c.limit.Quota)
}

// gone reports whether the context ended before a limit had decided.
func (d *decision) gone() bool {
	if d.ctx.Err() == nil {
		return false
	}
	for i := range d.checks {
		if pipeline.IsContextError(d.checks[i].err) {
			return true
		}
	}
	return false
}

// clampInt returns hits as an int.
func clampInt(hits uint64) int { return int(min(hits, math.MaxInt)) }
