package jobs

import (
	"fmt"
	"strings"
	"time"
)

// A Throttle says which limits the jobs of a kind run under. All of them hold: a job starts when it gets every one, and
// until then it holds none. The zero Throttle has no limits.
//
// Declare it on the worker or on the type of the arguments with [Declare], or for kinds by their names in [Config].
type Throttle struct {
	// Limits are what a job needs to start. Their order does not matter.
	Limits []Limit `yaml:"limits,omitempty"`
	// Strict holds the slots of mutexes and semaphores until the job is completed, cancelled, discarded or deleted, so
	// that no other job sees what a half-done one has left. If false, they are held while the job is running. Windows are
	// the same in both modes.
	Strict bool `yaml:"strict,omitempty"`
	// Action is what happens to a job that is throttled. If it is 0, it is that of [Options].
	Action Action `yaml:"action,omitempty"`
	// MinDelay is the least time for which a throttled job is snoozed. If it is 0, it is that of [Options].
	MinDelay time.Duration `yaml:"min_delay,omitempty"`
}

// A Limit names a limiter and what of it a job takes. Exactly one of the first five fields is set. Each type of limiter
// has names of its own: the mutex "orders" and the semaphore "orders" have nothing to do with each other.
type Limit struct {
	Mutex         string `yaml:"mutex,omitempty"`
	Semaphore     string `yaml:"semaphore,omitempty"`
	FixedWindow   string `yaml:"fixed_window,omitempty"`
	SlidingWindow string `yaml:"sliding_window,omitempty"`
	DynamicWindow string `yaml:"dynamic_window,omitempty"`

	// Key divides the limiter: each key has a mutex, a count or a window of its own. It is a text in which {field} stands
	// for a field of the job's arguments as they are in JSON, {field.inner} for one inside of another, and
	// {metadata:field} for one of the job's metadata. A field must be a string that is not empty, a number or a boolean.
	// Two fields need text between them, and the character with which it begins is written as %XX in values, as % and
	// control characters are, so that different texts never make the same key; the number 1 and the string "1" do. If Key is empty, all jobs share the
	// limiter; dynamic windows need it.
	Key string `yaml:"key,omitempty"`

	// Owner is who holds a mutex or a semaphore, a template as Key is. Jobs of the same owner share one slot. If it is
	// empty, it is the job itself: a job that is run again is let in to what it holds already.
	Owner string `yaml:"owner,omitempty"`
	// Mode is for mutexes and semaphores that a job takes for others: see [Acquire] and [Release].
	Mode Mode `yaml:"mode,omitempty"`
	// Deadline releases what a job has taken with [Acquire] after this time, for when no job comes to release it. If it is
	// 0, it is 24 hours; -1 turns it off, and then an operator can release it with [Throttler.Release].
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

// slots reports whether limiters of the type have slots that are held and released.
func (t Type) slots() bool { return t == Mutex || t == Semaphore }

// A Ref names a limiter or, with a key, one key of it.
type Ref struct {
	Type Type   `json:"type"`
	Name string `json:"name"`
	Key  string `json:"key,omitempty"`
}

// String returns the reference in words: semaphore "newsletter" key "a".
func (r Ref) String() string {
	s := fmt.Sprintf("%s %q", strings.ReplaceAll(string(r.Type), "_", " "), r.Name)
	if r.Key != "" {
		s += fmt.Sprintf(" key %q", r.Key)
	}
	return s
}

// An Action is what happens to a throttled job.
type Action uint8

const (
	// Snooze sends the job away until it has a chance. It costs no attempt.
	Snooze Action = iota + 1
	// Cancel cancels the job. Its errors have a [ThrottledError].
	Cancel
)

var actionNames = [...]string{"", "snooze", "cancel"}

// String returns the action's name, as it is written in a configuration.
func (a Action) String() string { return nameOf(actionNames[:], uint8(a), "Action") }

// MarshalText writes the action's name.
func (a Action) MarshalText() ([]byte, error) { return textOf(actionNames[:], uint8(a), "action") }

// UnmarshalText reads the action's name.
func (a *Action) UnmarshalText(text []byte) error {
	i, err := indexOf(actionNames[:], text, "action")
	if err == nil {
		*a = Action(i)
	}
	return err
}

// A Mode says when a job takes a mutex or a semaphore and when it gives it back.
type Mode uint8

const (
	// AcquireAndRelease takes a slot when the job starts and releases it when it ends. It is the zero Mode.
	AcquireAndRelease Mode = iota
	// Acquire takes a slot that stays taken when the job ends, for the [Limit.Owner], until a job of that owner with
	// Release has run, its Deadline is over, or [Throttler.Release] is called.
	Acquire
	// Release takes nothing. When the job ends, what its [Limit.Owner] holds is released. It is never throttled by this
	// limit, also if the owner holds nothing.
	Release
)

var modeNames = [...]string{"acquire_and_release", "acquire", "release"}

// String returns the mode's name, as it is written in a configuration.
func (m Mode) String() string { return nameOf(modeNames[:], uint8(m), "Mode") }

// MarshalText writes the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return textOf(modeNames[:], uint8(m), "mode") }

// UnmarshalText reads the mode's name.
func (m *Mode) UnmarshalText(text []byte) error {
	i, err := indexOf(modeNames[:], text, "mode")
	if err == nil {
		*m = Mode(i)
	}
	return err
}

func nameOf(names []string, i uint8, what string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}

func textOf(names []string, i uint8, what string) ([]byte, error) {
	if int(i) >= len(names) {
		return nil, fmt.Errorf("%w: no %s has number %d", ErrInvalidOptions, what, i)
	}
	return []byte(names[i]), nil
}

func indexOf(names []string, text []byte, what string) (uint8, error) {
	for i, name := range names {
		if name == string(text) {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%w: %s is %.100q, must be %s", ErrInvalidOptions, what, text, strings.TrimPrefix(strings.Join(names, " or "), " or "))
}

// ref returns the limiter that l names, without a key.
func (l Limit) ref(p *problems) (Ref, bool) {
	var refs []Ref
	for _, f := range []Ref{
		{Type: Mutex, Name: l.Mutex},
		{Type: Semaphore, Name: l.Semaphore},
		{Type: FixedWindow, Name: l.FixedWindow},
		{Type: SlidingWindow, Name: l.SlidingWindow},
		{Type: DynamicWindow, Name: l.DynamicWindow},
	} {
		if f.Name != "" {
			refs = append(refs, f)
		}
	}
	if len(refs) != 1 {
		p.add("must have one of {Mutex}, {Semaphore}, {FixedWindow}, {SlidingWindow} and {DynamicWindow}, has %d", len(refs))
		return Ref{}, false
	}
	return refs[0], true
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

// badName returns what is wrong with a limiter's name, or "".
func badName(name string) string {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Sprintf("has %d bytes, must have 1 to %d", len(name), maxName)
	case strings.ContainsFunc(name, unprintable):
		return "must be valid UTF-8 without control characters"
	}
	return ""
}

// A use is a Limit that has been checked, with its templates.
type use struct {
	ref      Ref // without a key
	key      template
	owner    template
	mode     Mode
	deadline time.Duration // 0: none
}

// parsed is a Throttle that has been checked.
type parsed struct {
	uses     []use
	strict   bool
	action   Action
	minDelay time.Duration
}

func (t Throttle) parse() (*parsed, error) {
	var p problems
	out := t.check(&p)
	return out, p.err()
}

func (t Throttle) check(p *problems) *parsed {
	out := &parsed{strict: t.Strict, action: t.Action, minDelay: t.MinDelay}
	if int(t.Action) >= len(actionNames) {
		p.add("{Action} is %v, must be snooze or cancel", t.Action)
	}
	if t.MinDelay < 0 || t.MinDelay > maxDelay {
		p.add("{MinDelay} is %v, must be 0 to %v", t.MinDelay, maxDelay)
	}
	if len(t.Limits) > maxLimits {
		p.add("{Limits} has %d, must have at most %d", len(t.Limits), maxLimits)
	}
	for i, l := range t.Limits {
		inner := problems{file: p.file}
		out.uses = append(out.uses, l.check(&inner))
		where := problems{file: p.file}
		where.add("{Limits}[%d]: ", i)
		p.include(where.list[0], inner)
	}
	return out
}

func (l Limit) check(p *problems) use {
	ref, ok := l.ref(p)
	if !ok {
		return use{}
	}
	if problem := badName(ref.Name); problem != "" {
		p.add("the name %.120q %s", ref.Name, problem)
	}
	u := use{ref: ref, mode: l.Mode, deadline: l.Deadline}
	var err error
	if u.key, err = parseTemplate(l.Key); err != nil {
		p.add("{Key} %v", err)
	}
	if u.owner, err = parseTemplate(l.Owner); err != nil {
		p.add("{Owner} %v", err)
	}
	if ref.Type == DynamicWindow && l.Key == "" {
		p.add("{Key} is empty: a dynamic window has a window for each key")
	}
	if !ref.Type.slots() && (l.Owner != "" || l.Mode != 0 || l.Deadline != 0) {
		p.add("{Owner}, {Mode} and {Deadline} are for mutexes and semaphores")
		return u
	}
	switch {
	case int(l.Mode) >= len(modeNames):
		p.add("{Mode} is %v, must be acquire_and_release, acquire or release", l.Mode)
	case l.Mode != AcquireAndRelease && l.Owner == "":
		p.add("{Owner} is empty: with {Mode} %v it says whose slot it is", l.Mode)
	case l.Mode != Acquire && l.Deadline != 0:
		p.add("{Deadline} is %v, must be 0: it is for {Mode} acquire", l.Deadline)
	case l.Deadline == -1:
		u.deadline = 0
	case l.Deadline < 0 || l.Deadline > maxDelay:
		p.add("{Deadline} is %v, must be -1 or 0 to %v", l.Deadline, maxDelay)
	case l.Mode == Acquire && l.Deadline == 0:
		u.deadline = defaultDeadline
	}
	return u
}
