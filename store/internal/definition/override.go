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
}

// ErrNotOverridden is the error of EndOverride if there is nothing to end.
var ErrNotOverridden = errors.New("store: the limiter is not overridden")

// None reports whether there is no override.
func (o *Override) None() bool { return o.Until == 0 }

// over reports whether the override has ended at the moment now of the store's clock.
func (o *Override) over(now int64) bool { return now >= o.Until }

// A watch calls a function with what happens to overrides: with what is in force with one, and with why it has ended if that is
// not empty.
type watch struct {
	f      atomic.Pointer[func(*InForce, string)]
	events *eventqueue.Queue[watched]
}

type watched struct {
	in    *InForce
	ended string
}

func (w *watch) init() {
	w.events = eventqueue.New("store: OnOverride", func(e watched) {
		if f := w.f.Load(); f != nil {
			(*f)(e.in, e.ended)
		}
	})
}

// changed reports the end of the override that was in force and the beginning of the one that is, unless they are the same.
// by is who ends it at this instance, or empty.
func (w *watch) changed(was, is *InForce, now int64, by string) {
	if was.Override == is.Override || w.f.Load() == nil {
		return
	}
	ended := "ended at another instance"
	switch {
	case was.Override.over(now):
		ended = "its time is over"
	case !is.Override.None():
		ended = "replaced by " + is.Override.By
	case by != "":
		ended = "ended by " + by
	}
	if !was.Override.None() {
		w.events.Add(watched{was, ended})
	}
	if !is.Override.None() {
		w.events.Add(watched{in: is})
	}
}

// unit is that of schedules and times in a store.
const unit = time.Microsecond
