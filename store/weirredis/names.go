package weirredis

import (
	"strings"

	"github.com/weir-go/weir/store"
)

// names are the names of what is stored. Different limiters and keys have different ones, and which
// limiter and key one is of can be read from it: a notice is the name of what has changed.
type names struct{ prefix string }

const leasesSuffix = ":leases"

// state is where the state of a key is.
func (n names) state(limiter, key string) string {
	return n.start(limiter) + keyEscaper.escape(key) + "}"
}

// start is what the names of all states of a limiter begin with.
func (n names) start(limiter string) string {
	return n.prefix + ":{" + nameEscaper.escape(limiter) + ":"
}

// leases is where the leases of a key are.
func (n names) leases(limiter, key string) string { return n.state(limiter, key) + leasesSuffix }

// definition is where the definition of a limiter is.
func (n names) definition(limiter string) string {
	// A tag must not be empty, or it is not one; this needs none. It has one to look like the others.
	return n.prefix + ":def:{" + nameEscaper.escape(limiter) + "}"
}

// channel is where notices are sent.
func (n names) channel() string { return n.prefix + ":notices" }

// notice returns what a message on the channel tells; ok is false if it is none of ours.
func (n names) notice(message string) (notice store.Notice, ok bool) {
	rest, ours := strings.CutPrefix(message, n.prefix)
	if limiter, defined := strings.CutPrefix(rest, ":def:{"); ours && defined {
		limiter, ok = strings.CutSuffix(limiter, "}")
		return store.Notice{Name: unescape.Replace(limiter)}, ok
	}
	rest, opened := strings.CutPrefix(rest, ":{")
	rest, closed := strings.CutSuffix(rest, "}"+leasesSuffix)
	limiter, key, split := strings.Cut(rest, ":")
	notice = store.Notice{Name: unescape.Replace(limiter), Key: unescape.Replace(key), Released: true}
	return notice, ours && opened && closed && split
}

// An escaper writes bytes so that they do not end what they are in.
type escaper struct {
	special  string
	replacer *strings.Replacer
}

var (
	keyEscaper  = escaper{"%}", strings.NewReplacer("%", "%25", "}", "%7D")}
	nameEscaper = escaper{"%}:", strings.NewReplacer("%", "%25", "}", "%7D", ":", "%3A")}
	unescape    = strings.NewReplacer("%25", "%", "%7D", "}", "%3A", ":")
)

func (e escaper) escape(s string) string {
	if !strings.ContainsAny(s, e.special) { // nearly always
		return s
	}
	return e.replacer.Replace(s)
}
