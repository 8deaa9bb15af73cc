package dashboard

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
)

// describeLimiter returns what the registry says about a limiter.
func describeLimiter(info registry.LimiterInfo) limiterState {
	state := limiterState{
		Name: info.Name, Kind: info.Kind, Place: "process", Options: fieldsOf(info.Options), Pipelines: info.Pipelines, History: []column{},
		partitioned: strings.Contains(info.Kind, "partitioned"),
	}
	if kind, ok := strings.CutPrefix(state.Kind, "shared "); ok {
		state.Kind, state.Place = kind, "store"
	}
	if kind, _, ok := strings.Cut(state.Kind, " by "); ok { // the types of the keys and resources
		state.Kind = kind
	}
	if state.Pipelines == nil {
		state.Pipelines = []string{}
	}
	state.Limits = limitsText(limitsOf(info.Options))
	state.Overridable = overridable(limitsOf(info.Options))
	if o := info.Override; o != nil {
		state.Override = &overrideState{By: o.By, Reason: o.Reason, Since: o.Since.UTC(), Until: o.Until.UTC()}
		state.Configured = fieldsOf(info.Configured)
	}
	if !state.partitioned {
		switch o := limitsOf(info.Options).(type) {
		case limiter.TokenBucketOptions:
			state.Limit = int64(o.TokenLimit)
		case limiter.FixedWindowOptions:
			state.Limit = int64(o.PermitLimit)
		case limiter.SlidingWindowOptions:
			state.Limit = int64(o.PermitLimit)
		case limiter.ConcurrencyOptions:
			state.Limit = int64(o.PermitLimit)
		}
	}
	return state
}

// limitsText returns limits in a form for people, or "" if it does not know them.
func limitsText(limits any) string {
	queue := func(n int) string {
		if n == 0 {
			return ""
		}
		return ", queue " + countText(int64(n))
	}
	switch o := limits.(type) {
	case limiter.TokenBucketOptions:
		return per(o.TokensPerPeriod, o.ReplenishmentPeriod) + ", burst " + countText(int64(o.TokenLimit)) + queue(o.QueueLimit)
	case limiter.FixedWindowOptions:
		return per(o.PermitLimit, o.Window) + queue(o.QueueLimit)
	case limiter.SlidingWindowOptions:
		return per(o.PermitLimit, o.Window) + fmt.Sprintf(" in %d segments", o.SegmentsPerWindow) + queue(o.QueueLimit)
	case limiter.ConcurrencyOptions:
		return countText(int64(o.PermitLimit)) + " at once" + queue(o.QueueLimit)
	default:
		return ""
	}
}

// per returns "20 per 1s", or "7.0/s" for a period that does not read well.
func per(n int, period time.Duration) string {
	if period <= 0 || period%time.Millisecond == 0 {
		return countText(int64(n)) + " per " + durationText(period)
	}
	return rateText(float64(n)/period.Seconds()) + "/s"
}

// limitsOf returns the limits in the options of a limiter of the registry: for a partitioned limiter the limits of each
// key, for one in a store the limits that are in the store.
func limitsOf(options any) any {
	v := reflect.ValueOf(options)
	if v.Kind() != reflect.Struct {
		return options
	}
	for _, name := range []string{"Limits", "Each"} {
		if f := v.FieldByName(name); f.IsValid() && f.CanInterface() {
			return f.Interface()
		}
	}
	return options
}

// stateString returns the state of a strategy in one line. It can call methods of the program.
func stateString(state any) string {
	switch s := state.(type) {
	case nil:
		return ""
	case fmt.Stringer:
		return shorten(s.String(), maxFieldText)
	}
	if v := reflect.ValueOf(state); v.CanInt() && v.Type().Name() == "Partitions" {
		return fmt.Sprintf("%d keys", v.Int())
	}
	if f := fieldsOf(state); len(f) > 0 {
		return shorten(f.String(), maxFieldText)
	}
	return shorten(fmt.Sprint(state), maxFieldText)
}

// rateText returns a rate with as many digits as make sense.
func rateText(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 0.095:
		return "<0.1"
	case r < 9.95:
		return fmt.Sprintf("%.1f", r)
	default:
		return countText(int64(r + 0.5))
	}
}

// countText returns a count with a space between thousands.
func countText(n int64) string {
	text := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	var b strings.Builder
	for i, r := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(r)
	}
	return sign + b.String()
}
