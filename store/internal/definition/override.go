package definition

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/eventqueue"
	"github.com/weir-go/weir/rate"
)

// An Override is why limits in force are not the configured ones; the zero Override is none. It is stored with the
// definition, so that every instance that knows the definition can end it, and an instance that starts later does not end
// it too early. Times are in µs of the store's clock since 1970.
type Override struct {
	Limits rate.Limits `json:"limits"` // with their queue
	Since  int64       `json:"since"`
	Until  int64       `json:"until"`
	By     string      `json:"by"`
	Reason string      `json:"reason"`

	Configured rate.Limits `json:"-"` // those after the end
	Ended      string      `json:"-"` // why it has ended
}

// ErrNotOverridden is the error of EndOverride if there is nothing to end.
var ErrNotOverridden = errors.New("store: the limiter is not overridden")

// None reports whether there is no override.
func (o *Override) None() bool { return o.Until == 0 }

// over reports whether the override has ended at the moment now of the store's clock.
func (o *Override) over(now int64) bool { return now >= o.Until }

// A watch calls a function with what happens to overrides. It must be initialized.
type watch struct {
	f      atomic.Pointer[func(Override)]
	events *eventqueue.Queue[Override]
}

func (w *watch) init() {
	w.events = eventqueue.New("store: OnOverride", func(o Override) {
		if f := w.f.Load(); f != nil {
			(*f)(o)
		}
	})
}

// changed reports the end of the override was and the beginning of the override is, unless they are the same, perhaps with
// other configured limits. ended is why this instance ends one, or empty.
func (w *watch) changed(was, is Override, now int64, ended string) {
	configured := was.Configured
	if was.Configured = is.Configured; was == is || w.f.Load() == nil {
		return
	}
	if was.Configured = configured; !was.None() {
		switch {
		case was.over(now):
			was.Ended = "its time is over"
		case !is.None():
			was.Ended = "replaced by " + is.By
		case ended != "":
			was.Ended = ended
		default:
			was.Ended = "ended at another instance"
		}
		w.events.Add(was)
	}
	if !is.None() {
		w.events.Add(is)
	}
}

// unit is that of schedules and times in a store.
const unit = time.Microsecond
