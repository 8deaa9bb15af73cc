package definition

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// An Override is why the limits of a definition are not the configured ones. It is stored with the definition, so that every
// instance that knows the definition can end it, and an instance that starts later does not end it too early. Times are in µs
// of the store's clock since 1970.
//
// A definition has an override only if both its limits and the configured ones are of the same kind.
type Override struct {
	Limits     rate.Limits `json:"limits"`     // with their queue
	Configured rate.Limits `json:"configured"` // after the end; the queue is that of each instance
	Since      int64       `json:"since"`
	Until      int64       `json:"until"`
	By         string      `json:"by"`
	Reason     string      `json:"reason"`
	Ended      string      `json:"-"` // why it has ended
}

// ErrNotOverridden is the error of EndOverride if there is nothing to end.
var ErrNotOverridden = errors.New("store: the limiter is not overridden")

// overrideIn returns the override in d, or nil if there is none.
func overrideIn(d *backend.Definition) *Override {
	o := &Override{}
	if d.Override == "" || json.Unmarshal([]byte(d.Override), o) != nil {
		return nil
	}
	return o
}

// over reports whether the override has ended at the moment now of the store's clock. o can be nil.
func (o *Override) over(now int64) bool { return o != nil && now >= o.Until }

// text returns what overrideIn reads.
func (o *Override) text(configured rate.Schedule) string {
	stored := *o
	stored.Configured = configured.Limits(time.Microsecond)
	text, _ := json.Marshal(stored) // cannot fail: there are only numbers and strings
	return string(text)
}

// same reports whether both are the same override, perhaps with other configured limits.
func (o *Override) same(other *Override) bool {
	if o == nil || other == nil {
		return o == other
	}
	a, b := *o, *other
	a.Configured, b.Configured = rate.Limits{}, rate.Limits{}
	return a == b
}

// ends returns what to report of overrides if the one in force was o and is now other; either can be nil. endedHere is why
// this instance ends one, or empty.
func (o *Override) ends(other *Override, now int64, endedHere string) (report []Override) {
	if o.same(other) {
		return nil
	}
	if o != nil {
		was := *o
		switch {
		case o.over(now):
			was.Ended = "its time is over"
		case other != nil:
			was.Ended = "replaced by " + other.By
		case endedHere != "":
			was.Ended = endedHere
		default:
			was.Ended = "ended at another instance"
		}
		report = append(report, was)
	}
	if other != nil {
		report = append(report, *other)
	}
	return report
}
