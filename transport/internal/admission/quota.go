package admission

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/transport/internal/status"
)

// A Quota is the quota of a client in one policy.
type Quota struct {
	Policy    string
	Permits   int64         // of a window, or of a full bucket
	Window    time.Duration // 0: there is none
	Remaining int64
	Reset     time.Duration // until there is more; 0: not known
}

// SendsQuota reports whether the policy tells clients about their quotas. A shadow does not: its limit is not in force.
func (p *Policy[R]) SendsQuota() bool {
	return p.Headers != NoHeaders && !p.Shadow && p.Limit.statistics != nil && (p.Quota > 0 || p.Limit.limits != nil)
}

// WriteQuota adds the current quota of a client to fields, and returns them. If fields is nil, it makes them. lease is the
// limiter's answer to the request r. If retryAfter is above 0, the request was rejected, and retryAfter is the reset of the quota.
func (l *Limits[R]) WriteQuota(fields map[string][]string, p *Policy[R], r R, key string, lease limiter.Lease, retryAfter time.Duration) map[string][]string {
	if !p.SendsQuota() {
		return fields
	}
	q, ok := p.currentQuota(r, key, lease, retryAfter)
	if !ok {
		return fields
	}
	if fields == nil {
		fields = make(map[string][]string, 3)
	}
	names := &l.transport.Fields
	if p.Headers == Draft11 {
		names.AddDraft11(fields, q)
		return fields
	}
	if retryAfter > 0 {
		delete(fields, names.LegacyRemaining) // of a handler further out, which must not hide the rejection
	}
	names.SetLegacy(fields, q)
	return fields
}

// currentQuota asks the limiter for each answer, because a reload or an override can change its limits.
func (p *Policy[R]) currentQuota(r R, key string, lease limiter.Lease, retryAfter time.Duration) (q Quota, ok bool) {
	l, remaining, ok := p.limitsAndRemaining(r, key, lease)
	if !ok || l.Permits == 0 {
		return Quota{}, false
	}
	q = Quota{Policy: p.Name}
	q.Permits, q.Window = l.Quota()
	q.Remaining = min(max(remaining, 0), q.Permits)
	switch {
	case retryAfter > 0:
		q.Reset = retryAfter
	case l.Kind == rate.TokenBucket:
		q.Reset = l.TimeToRestore(q.Permits - q.Remaining)
	default: // of other windows, only the limiter knows when they end
		q.Reset = cmp.Or(l.UntilNext(time.Now()), q.Window)
	}
	return q, true
}

// limitsAndRemaining returns the limits that clients are told, and the permits that are left.
func (p *Policy[R]) limitsAndRemaining(r R, key string, lease limiter.Lease) (l rate.Limits, remaining int64, ok bool) {
	if key == AmbiguousKey { // there is no limiter of that key
		return l, 0, false
	}
	if p.Quota == 0 && p.Limit.keyed {
		if l, remaining, ok = lease.Quota(); ok { // the lease of a key's limiter says everything
			return l, remaining, true
		}
	}
	if remaining, ok = lease.Remaining(); !ok { // the statistics of a shared limiter take a round trip
		statistics, err := p.Limit.statistics(r, key)
		if err != nil {
			return l, 0, false
		}
		remaining = statistics.AvailablePermits
	}
	if p.Quota > 0 {
		return rate.Limits{Kind: rate.FixedWindow, Permits: int(min(p.Quota, math.MaxInt)), Period: p.Window}, remaining, true
	}
	l, err := p.Limit.limits(r, key)
	return l, remaining, err == nil
}

// WriteGranted is [Limits.WriteQuota] for a call that p has admitted. r is the request that the handler gets. If p has granted
// nothing, because it has failed open, WriteGranted asks the limiter.
func (c *Call[R]) WriteGranted(fields map[string][]string, p *Policy[R], r R) map[string][]string {
	if !p.SendsQuota() {
		return fields
	}
	g, ok := c.of(p)
	if !ok && p.Limit.Key != nil {
		g.key = p.Limit.Key(r)
	}
	return c.limits.WriteQuota(fields, p, r, g.key, g.lease, 0)
}

// Remove removes the fields of all policies.
func (names *Fields) Remove(h map[string][]string) {
	for _, name := range [...]string{names.Policy, names.Limit, names.LegacyLimit, names.LegacyRemaining, names.LegacyReset} {
		delete(h, name)
	}
}

// AddDraft11 adds the lines of RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11.
func (names *Fields) AddDraft11(h map[string][]string, q Quota) {
	text := make([]byte, 0, 128)
	text = appendString(text, q.Policy)
	name := len(text)
	text = appendParameter(text, ";q=", q.Permits)
	if q.Window > 0 {
		text = appendParameter(text, ";w=", status.WholeSeconds(q.Window))
	}
	end := len(text)
	text = append(text, text[:name]...)
	text = appendParameter(text, ";r=", q.Remaining)
	if q.Reset > 0 {
		text = appendParameter(text, ";t=", status.WholeSeconds(q.Reset))
	}
	lines := string(text) // one allocation for both
	h[names.Policy] = append(h[names.Policy], lines[:end])
	h[names.Limit] = append(h[names.Limit], lines[end:])
}

// SetLegacy sets the legacy fields, unless they already describe a policy with less remaining.
func (names *Fields) SetLegacy(h map[string][]string, q Quota) {
	if lines := h[names.LegacyRemaining]; len(lines) > 0 {
		if remaining, err := strconv.ParseInt(lines[0], 10, 64); err == nil && remaining <= q.Remaining {
			return
		}
	}
	set := func(name string, n int64) { h[name] = []string{strconv.FormatInt(n, 10)} }
	set(names.LegacyLimit, q.Permits)
	set(names.LegacyRemaining, q.Remaining)
	delete(h, names.LegacyReset)
	if q.Reset > 0 {
		reset := time.Now().Add(min(q.Reset, math.MaxInt64-time.Second))
		set(names.LegacyReset, reset.Add(time.Second-1).Unix()) // rounded up, as by status.WholeSeconds
	}
}

// maxInteger is the largest integer that a structured field can have.
const maxInteger = 999_999_999_999_999

// appendParameter appends a parameter of a structured field.
func appendParameter(text []byte, name string, value int64) []byte {
	text = append(text, name...)
	return strconv.AppendInt(text, min(value, maxInteger), 10)
}

// appendString appends s as a string of RFC 9651: in quotes, with quotes and backslashes escaped. Such a string is
// printable ASCII; every other character becomes "?".
func appendString(text []byte, s string) []byte {
	text = append(text, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			text = append(text, '\\', byte(c))
		case c < ' ' || c > '~':
			text = append(text, '?')
		default:
			text = append(text, byte(c))
		}
	}
	return append(text, '"')
}
