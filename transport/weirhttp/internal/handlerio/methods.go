package handlerio

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// The optional methods of a ResponseWriter. Handlers look for them with type assertions and do something else if one is
// missing, so a wrapper must have exactly the methods that the inner one has.
const (
	hasFlush       = 1 << iota // F
	hasHijack                  // H
	hasReadFrom                // R
	hasPush                    // P
	hasCloseNotify             // C
)

// withMethods returns the writer with the optional methods of the inner one.
func (w *writer) withMethods() http.ResponseWriter {
	has := 0
	if canFlush(w.inner) {
		has |= hasFlush
	}
	if canHijack(w.inner) {
		has |= hasHijack
	}
	if _, ok := w.inner.(io.ReaderFrom); ok {
		has |= hasReadFrom
	}
	if _, ok := w.inner.(http.Pusher); ok {
		has |= hasPush
	}
	if _, ok := w.inner.(http.CloseNotifier); ok { //nolint:staticcheck // deprecated, but frameworks such as gin require it
		has |= hasCloseNotify
	}
	return methodSets[has](w)
}

func canFlush(w http.ResponseWriter) bool {
	switch w.(type) {
	case interface{ FlushError() error }, http.Flusher:
		return true
	}
	return false
}

func canHijack(w http.ResponseWriter) bool {
	_, ok := w.(http.Hijacker)
	return ok
}

func (w *writer) push(target string, o *http.PushOptions) error {
	return w.inner.(http.Pusher).Push(target, o)
}

func (w *writer) closeNotify() <-chan bool {
	return w.inner.(http.CloseNotifier).CloseNotify() //nolint:staticcheck // see withMethods
}

// Unwrap is for [http.ResponseController]. If the inner one has no Flush or Hijack, but wraps a ResponseWriter that has
// it, the controller would bypass the writer. So Unwrap then returns a link, whose method calls the writer.
func (w *writer) Unwrap() http.ResponseWriter {
	flushes, hijacks := onlyInside(w.inner, canFlush), onlyInside(w.inner, canHijack)
	switch l := (link{w}); {
	case flushes && hijacks:
		return linkFH{linkF{l}}
	case flushes:
		return linkF{l}
	case hijacks:
		return linkH{l}
	}
	return w.inner
}

// onlyInside reports whether w itself lacks a method, but a ResponseWriter that w wraps has it. Only an
// [http.ResponseController] finds the method there.
func onlyInside(w http.ResponseWriter, has func(http.ResponseWriter) bool) bool {
	if has(w) {
		return false
	}
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		if w = u.Unwrap(); has(w) {
			return true
		}
	}
}

// A link stands between a writer and the inner one; see Unwrap.
type (
	link   struct{ w *writer }
	linkF  struct{ link }
	linkH  struct{ link }
	linkFH struct{ linkF }
)

func (l link) asWriter() *writer           { return l.w }
func (l link) Header() http.Header         { return l.w.Header() }
func (l link) Write(p []byte) (int, error) { return l.w.Write(p) }
func (l link) WriteHeader(status int)      { l.w.WriteHeader(status) }
func (l link) Unwrap() http.ResponseWriter { return l.w.inner }

func (l linkF) Flush()                                        { _ = l.w.flush() } // Flush has no result
func (l linkF) FlushError() error                             { return l.w.flush() }
func (l linkH) Hijack() (net.Conn, *bufio.ReadWriter, error)  { return l.w.hijack() }
func (l linkFH) Hijack() (net.Conn, *bufio.ReadWriter, error) { return l.w.hijack() }

// A method set is fixed when the program is compiled, hence a type for each combination of the optional methods. Each
// embeds the combination without its last letter, and adds the method of that letter. All of them are one pointer, so
// that withMethods allocates nothing.
type (
	withF     struct{ *writer }
	withH     struct{ *writer }
	withFH    struct{ withF }
	withR     struct{ *writer }
	withFR    struct{ withF }
	withHR    struct{ withH }
	withFHR   struct{ withFH }
	withP     struct{ *writer }
	withFP    struct{ withF }
	withHP    struct{ withH }
	withFHP   struct{ withFH }
	withRP    struct{ withR }
	withFRP   struct{ withFR }
	withHRP   struct{ withHR }
	withFHRP  struct{ withFHR }
	withC     struct{ *writer }
	withFC    struct{ withF }
	withHC    struct{ withH }
	withFHC   struct{ withFH }
	withRC    struct{ withR }
	withFRC   struct{ withFR }
	withHRC   struct{ withHR }
	withFHRC  struct{ withFHR }
	withPC    struct{ withP }
	withFPC   struct{ withFP }
	withHPC   struct{ withHP }
	withFHPC  struct{ withFHP }
	withRPC   struct{ withRP }
	withFRPC  struct{ withFRP }
	withHRPC  struct{ withHRP }
	withFHRPC struct{ withFHRP }
)

// methodSets[has] adds the methods of has, a sum of the constants above, to a writer.
var methodSets = [...]func(w *writer) http.ResponseWriter{
	func(w *writer) http.ResponseWriter { return w },
	func(w *writer) http.ResponseWriter { return withF{w} },
	func(w *writer) http.ResponseWriter { return withH{w} },
	func(w *writer) http.ResponseWriter { return withFH{withF{w}} },
	func(w *writer) http.ResponseWriter { return withR{w} },
	func(w *writer) http.ResponseWriter { return withFR{withF{w}} },
	func(w *writer) http.ResponseWriter { return withHR{withH{w}} },
	func(w *writer) http.ResponseWriter { return withFHR{withFH{withF{w}}} },
	func(w *writer) http.ResponseWriter { return withP{w} },
	func(w *writer) http.ResponseWriter { return withFP{withF{w}} },
	func(w *writer) http.ResponseWriter { return withHP{withH{w}} },
	func(w *writer) http.ResponseWriter { return withFHP{withFH{withF{w}}} },
	func(w *writer) http.ResponseWriter { return withRP{withR{w}} },
	func(w *writer) http.ResponseWriter { return withFRP{withFR{withF{w}}} },
	func(w *writer) http.ResponseWriter { return withHRP{withHR{withH{w}}} },
	func(w *writer) http.ResponseWriter { return withFHRP{withFHR{withFH{withF{w}}}} },
	func(w *writer) http.ResponseWriter { return withC{w} },
	func(w *writer) http.ResponseWriter { return withFC{withF{w}} },
	func(w *writer) http.ResponseWriter { return withHC{withH{w}} },
	func(w *writer) http.ResponseWriter { return withFHC{withFH{withF{w}}} },
	func(w *writer) http.ResponseWriter { return withRC{withR{w}} },
	func(w *writer) http.ResponseWriter { return withFRC{withFR{withF{w}}} },
	func(w *writer) http.ResponseWriter { return withHRC{withHR{withH{w}}} },
	func(w *writer) http.ResponseWriter { return withFHRC{withFHR{withFH{withF{w}}}} },
	func(w *writer) http.ResponseWriter { return withPC{withP{w}} },
	func(w *writer) http.ResponseWriter { return withFPC{withFP{withF{w}}} },
	func(w *writer) http.ResponseWriter { return withHPC{withHP{withH{w}}} },
	func(w *writer) http.ResponseWriter { return withFHPC{withFHP{withFH{withF{w}}}} },
	func(w *writer) http.ResponseWriter { return withRPC{withRP{withR{w}}} },
	func(w *writer) http.ResponseWriter { return withFRPC{withFRP{withFR{withF{w}}}} },
	func(w *writer) http.ResponseWriter { return withHRPC{withHRP{withHR{withH{w}}}} },
	func(w *writer) http.ResponseWriter { return withFHRPC{withFHRP{withFHR{withFH{withF{w}}}}} },
}

func (w withF) Flush()            { _ = w.flush() } // Flush has no result
func (w withF) FlushError() error { return w.flush() }

func (w withH) Hijack() (net.Conn, *bufio.ReadWriter, error)  { return w.hijack() }
func (w withFH) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w withR) ReadFrom(src io.Reader) (int64, error)   { return w.readFrom(src) }
func (w withFR) ReadFrom(src io.Reader) (int64, error)  { return w.readFrom(src) }
func (w withHR) ReadFrom(src io.Reader) (int64, error)  { return w.readFrom(src) }
func (w withFHR) ReadFrom(src io.Reader) (int64, error) { return w.readFrom(src) }

func (w withP) Push(target string, o *http.PushOptions) error    { return w.push(target, o) }
func (w withFP) Push(target string, o *http.PushOptions) error   { return w.push(target, o) }
func (w withHP) Push(target string, o *http.PushOptions) error   { return w.push(target, o) }
func (w withFHP) Push(target string, o *http.PushOptions) error  { return w.push(target, o) }
func (w withRP) Push(target string, o *http.PushOptions) error   { return w.push(target, o) }
func (w withFRP) Push(target string, o *http.PushOptions) error  { return w.push(target, o) }
func (w withHRP) Push(target string, o *http.PushOptions) error  { return w.push(target, o) }
func (w withFHRP) Push(target string, o *http.PushOptions) error { return w.push(target, o) }

func (w withC) CloseNotify() <-chan bool     { return w.closeNotify() }
func (w withFC) CloseNotify() <-chan bool    { return w.closeNotify() }
func (w withHC) CloseNotify() <-chan bool    { return w.closeNotify() }
func (w withFHC) CloseNotify() <-chan bool   { return w.closeNotify() }
func (w withRC) CloseNotify() <-chan bool    { return w.closeNotify() }
func (w withFRC) CloseNotify() <-chan bool   { return w.closeNotify() }
func (w withHRC) CloseNotify() <-chan bool   { return w.closeNotify() }
func (w withFHRC) CloseNotify() <-chan bool  { return w.closeNotify() }
func (w withPC) CloseNotify() <-chan bool    { return w.closeNotify() }
func (w withFPC) CloseNotify() <-chan bool   { return w.closeNotify() }
func (w withHPC) CloseNotify() <-chan bool   { return w.closeNotify() }
func (w withFHPC) CloseNotify() <-chan bool  { return w.closeNotify() }
func (w withRPC) CloseNotify() <-chan bool   { return w.closeNotify() }
func (w withFRPC) CloseNotify() <-chan bool  { return w.closeNotify() }
func (w withHRPC) CloseNotify() <-chan bool  { return w.closeNotify() }
func (w withFHRPC) CloseNotify() <-chan bool { return w.closeNotify() }
