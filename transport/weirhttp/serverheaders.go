package weirhttp

import (
	"net/http"
	"strconv"
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

const retryAfterField = "Retry-After"

// quotaFields are in the form of [http.CanonicalHeaderKey], so that a map access can replace Set, which computes that form
// each time.
var quotaFields = admission.Header{
	Policy: "Ratelimit-Policy", Limit: "Ratelimit",
	LegacyLimit: "X-Ratelimit-Limit", LegacyRemaining: "X-Ratelimit-Remaining", LegacyReset: "X-Ratelimit-Reset",
}

// writeRetryAfter sets Retry-After, unless d is 0, which means not known.
func writeRetryAfter(h http.Header, d time.Duration) {
	if d > 0 {
		h[retryAfterField] = []string{strconv.FormatInt(status.WholeSeconds(d), 10)}
	}
}
