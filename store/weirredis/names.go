package weirredis

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// names builds the names of everything that is stored. Different limiters and keys have different names. The limiter and
// the key can be read from a name, because a notice only has the name of the definition or leases that have changed.
//
// The keys of a limiter are divided among numPlaces places, each in one slot of a Cluster. Each place has a copy of the
// limiter's definition, so that a script finds it next to the state that it decides about, on whatever server that is.
// The definition itself is in the place of the key "".
type names struct{ prefix string }

// numPlaces is how many places the keys of a limiter are divided among.
const numPlaces = 128

// placeOf returns the place of a key. It is FNV-1a and must never change.
func placeOf(key string) int {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return int(h % numPlaces)
}

// definition returns the name of a limiter's definition.
func (n names) definition(limiter string) string { return n.copyOf(limiter, placeOf("")) }

// copyOf returns the name of a place's copy of the definition.
func (n names) copyOf(limiter string, place int) string { return n.place(limiter, place) + defMark }

// place returns the beginning of all names in a place.
func (n names) place(limiter string, place int) string {
	return fmt.Sprintf("%s%s:%02x}", n.start(), nameEscaper.Replace(limiter), place)
}

// start returns the beginning of all names but the channel's.
func (n names) start() string { return n.prefix + ":{" }

const (
	stateMark  = ":s:"
	leasesMark = ":l:"
	defMark    = ":def"
)

func (n names) channel() string { return n.prefix + ":notices" }

// notice parses a message on the channel; ok is false for messages of others.
func (n names) notice(message string) (notice backend.Notice, ok bool) {
	rest, ours := strings.CutPrefix(message, n.start())
	tag, rest, closed := strings.Cut(rest, "}")
	limiter, place, placed := strings.Cut(tag, ":")
	notice.Name = unescape.Replace(limiter)
	if ok = ours && closed && placed && len(place) == 2; !ok || rest == defMark {
		return notice, ok
	}
	notice.Key, notice.Released = strings.CutPrefix(rest, leasesMark)
	return notice, notice.Released
}

// In a stored name, ":" and "}" end the limiter's name; therefore, they are escaped in it. A key needs no escaping,
// because it is at the end.
var (
	nameEscaper = strings.NewReplacer("%", "%25", "}", "%7D", ":", "%3A")
	unescape    = strings.NewReplacer("%25", "%", "%7D", "}", "%3A", ":")
)

// A limiterPlaces has the places of one limiter, made when they are needed.
type limiterPlaces struct {
	names names
	name  string
	made  [numPlaces]atomic.Pointer[place]
	plan  atomic.Pointer[plan] // the last one

	copied  atomic.Pointer[copiedVersion] // the last complete check of the copies
	copying atomic.Bool                   // a check is under way or planned
}

// A copiedVersion is the version that all places of a limiter had at a moment.
type copiedVersion struct {
	version int64
	at      time.Time
}

// A place has the names that calls about its keys need.
type place struct {
	start   string // the beginning of all names
	states  string // the beginning of the names of states
	def     any    // the name of the copy of the definition, a string
	unkeyed any    // the name of the state of the key "", a string
}

// of returns the place of a key.
func (l *limiterPlaces) of(key string) *place { return l.at(placeOf(key)) }

func (l *limiterPlaces) at(i int) *place {
	if p := l.made[i].Load(); p != nil {
		return p
	}
	p := &place{start: l.names.place(l.name, i), def: l.names.copyOf(l.name, i)}
	p.states = p.start + stateMark
	p.unkeyed = p.states
	l.made[i].Store(p)
	return p
}

// state returns the name of a key's state, a string.
func (p *place) state(key string) any {
	if key == "" {
		return p.unkeyed
	}
	return p.states + key
}
