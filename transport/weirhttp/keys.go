package weirhttp

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
)

// A Key says whose permits a request takes: requests with the same key share a
// limiter. It must be safe for concurrent use, and fast: it is asked about every
// request.
//
// The keys of this package are never longer than 128 bytes, whatever a client
// sends; of what would be longer, a digest is the key. How many different keys
// there can be is another question, see [PerKey].
type Key func(r *http.Request) string

const (
	longestKey   = 128
	digestPrefix = "sha256:"
)

// bounded returns s, or its digest if s is longer than a key may be. What looks
// like a digest is digested, too, so that nobody can claim the key of another by
// sending its digest. The digest is the same on every machine: the state of a key
// may be in a store that several share.
func bounded(s string) string {
	if len(s) <= longestKey && !strings.HasPrefix(s, digestPrefix) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	var text [len(digestPrefix) + 2*sha256.Size]byte
	copy(text[:], digestPrefix)
	hex.Encode(text[len(digestPrefix):], sum[:])
	return string(text[:])
}

// Header is the value of a request header, such as X-Api-Key; of the first line
// if there are several. All requests without it have the key "".
//
// A client can send what it likes: take a header as the key only where something
// in front has checked it. Else every request comes with a new key, and with a
// limiter that nobody has used yet.
func Header(name string) Key {
	canonical := http.CanonicalHeaderKey(name)
	if canonical == "Host" { // the server takes it out of the header
		return func(r *http.Request) string { return bounded(r.Host) }
	}
	return func(r *http.Request) string {
		if lines := r.Header[canonical]; len(lines) > 0 {
			return bounded(lines[0])
		}
		return ""
	}
}

// Route is the pattern of the [http.ServeMux] that the request matched, such as
// "GET /orders/{id}": all orders share a limiter, and a client cannot make up
// keys by making up paths. All requests that matched none have the key "".
//
// The mux finds the pattern, so this works only behind one: wrap the handlers that
// are registered with it, not the mux.
func Route() Key {
	return func(r *http.Request) string { return bounded(r.Pattern) }
}

// Subject is what f finds in the request: the user that authentication has put
// into its context, the tenant of a verified token. f must not be nil.
func Subject(f func(r *http.Request) string) Key {
	if f == nil {
		panic("weirhttp: Subject of a nil function")
	}
	return func(r *http.Request) string { return bounded(f(r)) }
}

// Composite is all of keys together: requests share a limiter if they agree in
// every one. Each part comes after its length, so no part can pass for two. None
// of keys may be nil.
func Composite(keys ...Key) Key {
	for _, key := range keys {
		if key == nil {
			panic("weirhttp: Composite of a nil Key")
		}
	}
	keys = append([]Key(nil), keys...)
	return func(r *http.Request) string {
		text := make([]byte, 0, longestKey)
		for _, key := range keys {
			part := key(r)
			text = strconv.AppendInt(text, int64(len(part)), 10)
			text = append(text, ':')
			text = append(text, part...)
		}
		return bounded(string(text))
	}
}
