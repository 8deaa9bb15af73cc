package jobs

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/internal/validate"
)

// A Throttle has the limits that jobs of a kind run under. A job starts when it gets all of them, and until then it holds
// none. The zero Throttle has no limits.
//
// Declare it on the worker or on the type of the arguments with [Declare], or for kinds by their names in [Config].
type Throttle struct {
	// Limits are what a job needs to start. Their order does not matter.
	Limits []Limit `yaml:"limits,omitempty"`
	// Strict holds the slots of mutexes and semaphores until the job is completed, cancelled, discarded or deleted, so
	// that no other job runs between two attempts of this one. If false, they are held while the job is running. Windows
	// work the same in both modes.
	Strict bool `yaml:"strict,omitempty"`
	// Cancel cancels a throttled job instead of snoozing it. Its errors have a [ThrottledError].
	Cancel bool `yaml:"cancel,omitempty"`
	// MinDelay is the shortest time for which a throttled job is snoozed. Of several declarations of a job the longest counts.
	// If all are 0, it is that of [Options].
	MinDelay time.Duration `yaml:"min_delay,omitempty"`
}

// A Limit names a limiter, and says what a job takes of it. Exactly one of the first five fields must be set. Each type of
// limiter has its own names: the mutex "orders" and the semaphore "orders" are independent.
type Limit struct {
	Mutex         string `yaml:"mutex,omitempty"`
	Semaphore     string `yaml:"semaphore,omitempty"`
	FixedWindow   string `yaml:"fixed_window,omitempty"`
	SlidingWindow string `yaml:"sliding_window,omitempty"`
	DynamicWindow string `yaml:"dynamic_window,omitempty"`

	// Key divides the limiter: each key has its own mutex, count or window. It is a text in which {field} stands for a
	// field of the job's arguments in JSON, {field.inner} for a field inside another, and {metadata:field} for a field
	// of the job's metadata. The value must be a string that is not empty, a number or a boolean. Two fields need text
	// between them. If Key is empty, all jobs share the limiter; a dynamic window must have a Key.
	//
	// Different values never make the same key, except that the number 1 and the string "1" do: the first character of a
	// text between two fields is written as %XX in values, as are % and control characters.
	Key string `yaml:"key,omitempty"`

	// Owner is the holder of a mutex or a semaphore, a template like Key. Jobs of the same owner share one slot. If
	// empty, it is the job itself: a job that runs again keeps the slot that it holds.
	Owner string `yaml:"owner,omitempty"`
	// Mode is for mutexes and semaphores that a job takes for others: see [Acquire] and [Release].
	Mode Mode `yaml:"mode,omitempty"`
	// Deadline releases what a job has taken with [Acquire] after this time, if no job has released it before. If 0, it
	// is 24 hours; -1 turns it off, and then an operator can release it with [Throttler.Release].
	Deadline time.Duration `yaml:"deadline,omitempty"`
}

// A Type is a type of limiter.
type Type string

// The types of limiters.
const (
	Mutex         Type = "mutex"
	Semaphore     Type = "semaphore"
	FixedWindow   Type = "fixed_window"
	SlidingWindow Type = "sliding_window"
	DynamicWindow Type = "dynamic_window"
)

// hasSlots reports whether limiters of the type have slots that are held and released.
func (t Type) hasSlots() bool { return t == Mutex || t == Semaphore }

// words returns the type in words, such as fixed window.
func (t Type) words() string { return strings.ReplaceAll(string(t), "_", " ") }

// A Ref names a limiter or, with a key, one key of it.
type Ref struct {
	Type Type   `json:"type"`
	Name string `json:"name"`
	Key  string `json:"key,omitempty"`
}

// String returns the reference in words: semaphore "newsletter" key "a".
func (r Ref) String() string {
	s := fmt.Sprintf("%s %q", r.Type.words(), r.Name)
	if r.Key != "" {
		s += fmt.Sprintf(" key %q", r.Key)
	}
	return s
}

// A Mode says when a job takes a slot of a mutex or a semaphore, and when it releases it.
type Mode uint8

const (
	// AcquireAndRelease takes a slot when the job starts and releases it when it ends. It is the zero Mode.
	AcquireAndRelease Mode = iota
	// Acquire takes a slot for the [Limit.Owner] when the job starts. The slot stays taken until a job of that owner with
	// mode Release has run, the Deadline is over, or [Throttler.Release] is called.
	Acquire
	// Release takes nothing. When the job ends, the slot that its [Limit.Owner] holds is released. This limit never
	// throttles the job, even if the owner holds nothing.
	Release
)

var modes = textenum.Texts[Mode]{Package: "jobs", Type: "Mode", Texts: []string{"acquire_and_release", "acquire", "release"}}

// String returns the mode's name, as it is written in a configuration.
func (m Mode) String() string { return modes.String(m) }

// MarshalText writes the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return modes.Marshal(m) }

// UnmarshalText reads the mode's name.
func (m *Mode) UnmarshalText(text []byte) error {
	return modes.Unmarshal(m, []byte(short(string(text))))
}

// A nameField is a field that names a limiter of a type.
type nameField struct {
	field string
	typ   Type
}

// nameFields are the fields of [Limit] with names. Those of [Definition] are the same without the first.
var nameFields = []nameField{
	{"Mutex", Mutex}, {"Semaphore", Semaphore}, {"FixedWindow", FixedWindow}, {"SlidingWindow", SlidingWindow}, {"DynamicWindow", DynamicWindow},
}

// oneName returns the limiter that the fields with these values name. ok is false if not exactly one is set.
func oneName(p *validate.Problems, fields []nameField, values ...string) (ref Ref, ok bool) {
	var all []string
	found, set := 0, ""
	for i, f := range fields {
		all = append(all, "{"+f.field+"}")
		if values[i] != "" {
			found++
			ref, set = Ref{Type: f.typ, Name: values[i]}, f.field
		}
	}
	if found != 1 {
		p.Add("", found, "must have exactly one of "+strings.Join(all, ", "))
		return ref, false
	}
	switch {
	case len(ref.Name) > maxName:
		p.Add(set, short(ref.Name), "must have 1 to %d bytes", maxName)
	case strings.ContainsFunc(ref.Name, unprintable):
		p.Add(set, ref.Name, "must be valid UTF-8 without control characters")
	}
	return ref, true
}

const (
	maxName = 100
	maxKey  = 255
	// maxLimits bounds the limits of one job.
	maxLimits = 20
	// maxDelay bounds delays and deadlines, so that no time overflows.
	maxDelay = 10 * 365 * 24 * time.Hour

	defaultDeadline = 24 * time.Hour
)

// A parsedLimit is a Limit that has been checked, with its templates.
type parsedLimit struct {
	ref      Ref // without a key
	key      template
	owner    template
	mode     Mode
	deadline time.Duration // 0: none
}

// A parsedThrottle is a Throttle that has been checked.
type parsedThrottle struct {
	limits   []parsedLimit
	strict   bool
	cancel   bool
	minDelay time.Duration
}

// check parses t, and adds what is wrong with it to p.
func (t Throttle) check(p *validate.Problems) *parsedThrottle {
	out := &parsedThrottle{strict: t.Strict, cancel: t.Cancel, minDelay: t.MinDelay}
	if t.MinDelay < 0 || t.MinDelay > maxDelay {
		p.Add("MinDelay", t.MinDelay, "must be 0 to %v", maxDelay)
	}
	if len(t.Limits) > maxLimits {
		p.Add("Limits", len(t.Limits), "must have at most %d elements", maxLimits)
	}
	for i, l := range t.Limits {
		var inner validate.Problems
		out.limits = append(out.limits, l.check(&inner))
		for j, other := range t.Limits[:i] { // a job gets a key once
			alike := other
			alike.Owner, alike.Mode, alike.Deadline = l.Owner, l.Mode, l.Deadline
			if alike == l && l != other {
				inner.Add("", nil, "must not name the limiter and the key of Limits[%d] with another {Owner}, {Mode} or {Deadline}", j)
				break
			}
		}
		p.Include(fmt.Sprintf("Limits[%d]", i), inner.Err("jobs"))
	}
	return out
}

// check parses l, and adds its problems to p.
func (l Limit) check(p *validate.Problems) parsedLimit {
	ref, ok := oneName(p, nameFields, l.Mutex, l.Semaphore, l.FixedWindow, l.SlidingWindow, l.DynamicWindow)
	if !ok {
		return parsedLimit{}
	}
	u := parsedLimit{ref: ref, mode: l.Mode, deadline: l.Deadline}
	var problem string
	if u.key, problem = parseTemplate(l.Key); problem != "" {
		p.Add("Key", short(l.Key), problem)
	}
	if u.owner, problem = parseTemplate(l.Owner); problem != "" {
		p.Add("Owner", short(l.Owner), problem)
	}
	if ref.Type == DynamicWindow && l.Key == "" {
		p.Add("Key", nil, "must not be empty: a dynamic window has a window for each key")
	}
	if !ref.Type.hasSlots() && (l.Owner != "" || l.Mode != 0 || l.Deadline != 0) {
		p.Add("", nil, "must not have {Owner}, {Mode} or {Deadline}, which are for mutexes and semaphores")
		return u
	}
	switch {
	case !modes.Has(l.Mode):
		p.Add("Mode", l.Mode, "must be acquire_and_release, acquire or release")
	case l.Mode != AcquireAndRelease && l.Owner == "":
		p.Add("Owner", nil, "must not be empty with {Mode} %v: it says whose slot it is", l.Mode)
	case l.Mode != Acquire && l.Deadline != 0:
		p.Add("Deadline", l.Deadline, "must be 0 unless {Mode} is acquire")
	case l.Deadline == -1:
		u.deadline = 0
	case l.Deadline < 0 || l.Deadline > maxDelay:
		p.Add("Deadline", l.Deadline, "must be -1, or 0 to %v", maxDelay)
	case l.Mode == Acquire && l.Deadline == 0:
		u.deadline = defaultDeadline
	}
	return u
}
