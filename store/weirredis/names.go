package weirredis

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/store/backend"
)

// names are the names of what is stored. Different limiters and keys have different ones, and which
// limiter and key one is of can be read from it: a notice is the name of what has changed.
//
// The keys of a limiter are divided among so many places, each in one slot of a Cluster. Each place has a copy of the
// limiter's definition, so that a script finds it beside the state that it decides about, on whatever server that is.
// The definition itself is in the place of the key "".
type names struct{ prefix string }

// placesOf is how many places the keys of a limiter are divided among.
const placesOf = 128

// placeOf is the place of a key: FNV-1a, which must never change.
func placeOf(key string) int {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return int(h % placesOf)
}

// state is where the state of a key is.
func (n names) state(limiter, key string) string {
	return n.place(limiter, placeOf(key)) + stateMark + key
}

// leases is where the leases of a key are.
func (n names) leases(limiter, key string) string {
	return n.place(limiter, placeOf(key)) + leasesMark + key
}

// definition is where the definition of a limiter is.
func (n names) definition(limiter string) string { return n.copyOf(limiter, placeOf("")) }

// copyOf is where the copy of the definition is for the keys of that place.
func (n names) copyOf(limiter string, place int) string { return n.place(limiter, place) + defMark }

// place is what the names of all that is in a place begin with.
func (n names) place(limiter string, place int) string {
	return fmt.Sprintf("%s%s:%02x}", n.start(), nameEscaper.Replace(limiter), place)
}

// start is what the names of everything but the channel begin with.
func (n names) start() string { return n.prefix + ":{" }

const (
	stateMark  = ":s:"
	leasesMark = ":l:"
	defMark    = ":def"
)

// channel is where notices are sent.
func (n names) channel() string { return n.prefix + ":notices" }

// notice returns what a message on the channel tells; ok is false if it is none of ours.
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

// In the names of limiters no byte may end what they are in. A key stands at the end, and is as it is.
var (
	nameEscaper = strings.NewReplacer("%", "%25", "}", "%7D", ":", "%3A")
	unescape    = strings.NewReplacer("%25", "%", "%7D", "}", "%3A", ":")
)

// A limiterPlaces has the places of one limiter, as far as they were needed.
type limiterPlaces struct {
	names names
	name  string
	made  [placesOf]atomic.Pointer[place]

	copied  atomic.Pointer[copied] // what is known of the copies of the definition
	copying atomic.Bool            // they are being checked, or are about to be
}

// A place has the names that are needed for each question about a key in it.
type place struct {
	start   string // what all names begin with
	states  string // what the names of states begin with
	def     any    // the name of the copy of the definition, in the form in which it is an argument
	unkeyed any    // the name of the state of the key ""
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

// state is the name of the state of a key, as an argument.
func (p *place) state(key string) any {
	if key == "" {
		return p.unkeyed
	}
	return p.states + key
}

// A bounded map forgets everything when it has too much.
type boundedMap[K comparable, V any] struct {
	m     sync.Map
	count atomic.Int64
}

func (b *boundedMap[K, V]) load(k K) (v V, ok bool) {
	got, ok := b.m.Load(k)
	if ok {
		v = got.(V)
	}
	return v, ok
}

func (b *boundedMap[K, V]) store(k K, v V, most int64) {
	if b.count.Add(1) > most {
		b.m.Clear()
		b.count.Store(1)
	}
	b.m.Store(k, v)
}

// mostPlaces bounds of how many limiters the places are kept.
const mostPlaces = 4096

// places returns those of a limiter.
func (b *Backend) places(limiter string) *limiterPlaces {
	if l, ok := b.limiters.load(limiter); ok {
		return l
	}
	l := &limiterPlaces{names: b.names, name: limiter}
	b.limiters.store(limiter, l, mostPlaces)
	return l
}
