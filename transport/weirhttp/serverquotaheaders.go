package weirhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/status"
)

// Headers selects the header fields that tell a client how much of its quota is left, in answers to admitted and to
// rejected requests. Retry-After does not depend on it: a rejection has it whenever it is known. In configuration files
// it is "none", "legacy" or "draft-11".
type Headers uint8

const (
	// NoHeaders sends none. It is the zero value.
	NoHeaders Headers = iota
	// Legacy sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset. No
	// standard defines them; here Reset is a Unix time in seconds, as in the APIs that
	// made them known. If the route has several policies, the fields describe the
	// policy with the fewest remaining permits.
	Legacy
	// Draft11 sends RateLimit-Policy and RateLimit, one line for each policy, in the
	// form of draft-ietf-httpapi-ratelimit-headers-11. The next draft can differ.
	Draft11
)

var headersTexts = textenum.Texts[Headers]{Package: "weirhttp", Type: "Headers", Texts: []string{
	NoHeaders: "none", Legacy: "legacy", Draft11: "draft-11",
}}

// String returns the text form, or Headers(n) for any other number.
func (k Headers) String() string { return headersTexts.String(k) }

// MarshalText implements [encoding.TextMarshaler].
func (k Headers) MarshalText() ([]byte, error) { return headersTexts.Marshal(k) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Headers) UnmarshalText(text []byte) error { return headersTexts.Unmarshal(k, text) }

// validate adds a problem of the field Headers if k is none of the constants.
func (k Headers) validate(problems *validate.Problems) {
	if !headersTexts.Has(k) {
		problems.Add("Headers", k, "must be NoHeaders, Legacy or Draft11")
	}
}

// The names of the fields in the form of [http.CanonicalHeaderKey], so that a map access can replace Set, which
// computes that form each time.
const (
	retryAfterField      = "Retry-After"
	policyField          = "Ratelimit-Policy"
	limitField           = "Ratelimit"
	legacyLimitField     = "X-Ratelimit-Limit"
	legacyRemainingField = "X-Ratelimit-Remaining"
	legacyResetField     = "X-Ratelimit-Reset"
)

// A quota is what one policy tells a client.
type quota admission.Quota

// removeQuotas removes the fields of all policies.
func removeQuotas(h http.Header) {
	for _, field := range [...]string{policyField, limitField, legacyLimitField, legacyRemainingField, legacyResetField} {
		delete(h, field)
	}
}

// writeRetryAfter sets Retry-After to d, unless d is 0, which means not known, or h has a later Retry-After. It is
// called before the quotas of the route are written. If h already has RateLimit lines, from a handler further out,
// writeRetryAfter keeps the rule of quota.write for those lines, too.
func writeRetryAfter(h http.Header, d time.Duration) {
	if d <= 0 {
		return
	}
	seconds := alignResets(h[limitField], status.WholeSeconds(d))
	if set, ok := retryAfterIn(h); ok && set >= seconds {
		return
	}
	setNumber(h, retryAfterField, seconds)
}

// alignResets applies the rule of quota.write to RateLimit lines, which writeDraft11 has made, and to a Retry-After of
// that many seconds. It returns the new Retry-After, which is at least the t of every exhausted policy, and removes
// every t that is later than that.
func alignResets(lines []string, seconds int64) int64 {
	for _, line := range lines {
		if _, t, exhausted := resetIn(line); exhausted {
			seconds = max(seconds, t)
		}
	}
	for i, line := range lines {
		if end, t, _ := resetIn(line); t > seconds {
			lines[i] = line[:end]
		}
	}
	return seconds
}

// resetIn returns the t of a RateLimit line, which is its reset in seconds, and the position of t. If the line has no t,
// t is 0. exhausted reports whether nothing remains.
func resetIn(line string) (at int, t int64, exhausted bool) {
	parameters := line[strings.LastIndexByte(line, '"')+1:]
	before, text, found := strings.Cut(parameters, ";t=")
	if !found || !strings.HasPrefix(before, ";r=") {
		return 0, 0, false
	}
	t, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	return len(line) - len(";t=") - len(text), t, before == ";r=0"
}

// retryAfterIn returns the seconds that writeRetryAfter has set.
func retryAfterIn(h http.Header) (seconds int64, ok bool) {
	lines := h[retryAfterField]
	if len(lines) == 0 {
		return 0, false
	}
	seconds, err := strconv.ParseInt(lines[0], 10, 64)
	return seconds, err == nil
}

// write adds the fields of one policy. It is called once for each policy, after writeRetryAfter.
//
// Rule: Retry-After is never earlier than the t of a RateLimit line, which is the reset in seconds. If it would be, and
// the policy is exhausted, Retry-After moves to t. If the policy is not exhausted, the line has no t instead, because a
// client need not wait until there is even more.
func (q quota) write(h http.Header, kind Headers) {
	q.Permits, q.Remaining = max(q.Permits, 0), max(q.Remaining, 0)
	switch kind {
	case Legacy:
		q.writeLegacy(h)
	case Draft11:
		q.writeDraft11(h)
	}
}

func (q quota) writeDraft11(h http.Header) {
	reset := status.WholeSeconds(q.Reset)
	if retryAfter, ok := retryAfterIn(h); ok && retryAfter < reset {
		if q.Remaining == 0 {
			writeRetryAfter(h, q.Reset)
		} else {
			reset = 0
		}
	}
	policy, limit := admission.Quota(q).Draft11(reset)
	h[policyField] = append(h[policyField], policy)
	h[limitField] = append(h[limitField], limit)
}

// writeLegacy describes the policy, unless the fields already describe one with less remaining.
func (q quota) writeLegacy(h http.Header) {
	if lines := h[legacyRemainingField]; len(lines) > 0 {
		if remaining, err := strconv.ParseInt(lines[0], 10, 64); err == nil && remaining <= q.Remaining {
			return
		}
	}
	setNumber(h, legacyLimitField, q.Permits)
	setNumber(h, legacyRemainingField, q.Remaining)
	delete(h, legacyResetField)
	if q.Reset > 0 {
		setNumber(h, legacyResetField, admission.Quota(q).LegacyReset())
	}
}

func setNumber(h http.Header, field string, n int64) {
	h[field] = []string{strconv.FormatInt(n, 10)}
}
