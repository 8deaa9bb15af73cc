package weirgrpc

import (
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/admission"
)

// Headers selects the metadata that tells a client how much of its quota is left. It is in the header of a successful
// response and, so that the client can retry, in the trailer of an error. It does not affect RetryInfo and
// grpc-retry-pushback-ms, which a rejection has whenever the wait is known. Its text form is "none", "legacy" or "draft-11".
type Headers uint8

const (
	// NoHeaders sends none. It is the zero value.
	NoHeaders Headers = iota
	// Legacy sends x-ratelimit-limit, x-ratelimit-remaining and x-ratelimit-reset. No
	// standard defines them; here reset is a Unix time in seconds. If the method has
	// several policies, they describe the policy with the fewest remaining permits.
	Legacy
	// Draft11 sends ratelimit-policy and ratelimit, one value for each policy, in the
	// form of draft-ietf-httpapi-ratelimit-headers-11. The next draft can differ.
	Draft11
)

var headersTexts = textenum.Texts[Headers]{Package: "weirgrpc", Type: "Headers", Texts: []string{
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

var quotaKeys = admission.Header{
	Policy: "ratelimit-policy", Limit: "ratelimit",
	LegacyLimit: "x-ratelimit-limit", LegacyRemaining: "x-ratelimit-remaining", LegacyReset: "x-ratelimit-reset",
}

// appendQuota adds the quota of p to md, which it makes if it is nil. A retryAfter above 0, of a rejection, replaces the
// reset of the quota.
func (p *preparedPolicy) appendQuota(md metadata.MD, r *Request, key string, lease limiter.Lease, retryAfter time.Duration) metadata.MD {
	q, ok := p.CurrentQuota(r, key, lease, retryAfter)
	if !ok {
		return md
	}
	if md == nil {
		md = make(metadata.MD, 3)
	}
	if p.options.Headers == Legacy {
		quotaKeys.SetLegacy(md, q)
	} else {
		quotaKeys.AddDraft11(md, q)
	}
	return md
}
