package weirhttp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The methods that a ResponseWriter may have, for every mixture of them.
type (
	canF struct{ did *string }
	canH struct{ did *string }
	canR struct{ did *string }
	canP struct{ did *string }
)

func (c canF) Flush() { *c.did += "F" }
func (c canH) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	*c.did += "H"
	return nil, nil, nil
}
func (c canR) ReadFrom(src io.Reader) (int64, error) {
	*c.did += "R"
	return io.Copy(io.Discard, src)
}
func (c canP) Push(string, *http.PushOptions) error {
	*c.did += "P"
	return nil
}

func writers(did *string) map[string]http.ResponseWriter {
	n := nobody{make(http.Header)}
	f, h, r, p := canF{did}, canH{did}, canR{did}, canP{did}
	return map[string]http.ResponseWriter{
		"": n,
		"F": struct {
			nobody
			canF
		}{n, f},
		"H": struct {
			nobody
			canH
		}{n, h},
		"R": struct {
			nobody
			canR
		}{n, r},
		"P": struct {
			nobody
			canP
		}{n, p},
		"FH": struct {
			nobody
			canF
			canH
		}{n, f, h},
		"FR": struct {
			nobody
			canF
			canR
		}{n, f, r},
		"FP": struct {
			nobody
			canF
			canP
		}{n, f, p},
		"HR": struct {
			nobody
			canH
			canR
		}{n, h, r},
		"HP": struct {
			nobody
			canH
			canP
		}{n, h, p},
		"RP": struct {
			nobody
			canR
			canP
		}{n, r, p},
		"FHR": struct {
			nobody
			canF
			canH
			canR
		}{n, f, h, r},
		"FHP": struct {
			nobody
			canF
			canH
			canP
		}{n, f, h, p},
		"FRP": struct {
			nobody
			canF
			canR
			canP
		}{n, f, r, p},
		"HRP": struct {
			nobody
			canH
			canR
			canP
		}{n, h, r, p},
		"FHRP": struct {
			nobody
			canF
			canH
			canR
			canP
		}{n, f, h, r, p},
	}
}

func TestWriterHasWhatTheInnerOneHas(t *testing.T) {
	var did string
	for can, inner := range writers(&did) {
		t.Run(can, func(t *testing.T) {
			once, twice := newResponse(inner), newResponse(newResponse(inner).writer())
			for _, w := range []http.ResponseWriter{once.writer(), twice.writer()} {
				did = ""
				if f, ok := w.(http.Flusher); ok {
					f.Flush()
				}
				if h, ok := w.(http.Hijacker); ok {
					_, _, _ = h.Hijack()
				}
				if r, ok := w.(io.ReaderFrom); ok {
					_, _ = r.ReadFrom(strings.NewReader("x"))
				}
				if p, ok := w.(http.Pusher); ok {
					_ = p.Push("/", nil)
				}
				assert.Equal(t, can, did)

				did = ""
				c := http.NewResponseController(w)
				assert.Equal(t, strings.Contains(can, "F"), c.Flush() == nil)
				_, _, err := c.Hijack()
				assert.Equal(t, strings.Contains(can, "H"), err == nil)
				assert.Equal(t, strings.NewReplacer("R", "", "P", "").Replace(can), did)
			}
			assert.Equal(t, can != "" && can != "P", once.begun())
			assert.Equal(t, strings.Contains(can, "H"), once.hijacked)
		})
	}
}

func TestWhenAResponseHasBegun(t *testing.T) {
	for i, c := range []struct {
		do     func(w http.ResponseWriter)
		status int
	}{
		{func(http.ResponseWriter) {}, 0},
		{func(w http.ResponseWriter) { w.Header().Set("A", "b") }, 0},
		{func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, 0},
		{func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(http.StatusNotFound) }, 404},
		{func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusInternalServerError)
		}, 201},
		{func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) }, 101},
		{func(w http.ResponseWriter) { _, _ = w.Write(nil) }, 200},
		{func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") }, 200},
	} {
		w := newResponse(nobody{make(http.Header)})
		c.do(w.writer())
		assert.Equal(t, c.status, w.status, fmt.Sprint(i))
	}
}
