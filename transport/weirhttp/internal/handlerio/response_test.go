package handlerio

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// discardWriter is a ResponseWriter that does nothing.
type discardWriter struct{ header http.Header }

func (n discardWriter) Header() http.Header         { return n.header }
func (n discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (n discardWriter) WriteHeader(int)             {}

// ResponseWriters with every combination of the optional methods.
type (
	canF struct{ did *string }
	canH struct{ did *string }
	canR struct{ did *string }
	canP struct{ did *string }
	canC struct{ did *string }
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

func (c canC) CloseNotify() <-chan bool {
	*c.did += "C"
	return nil
}

func writers(did *string) map[string]http.ResponseWriter {
	n := discardWriter{make(http.Header)}
	f, h, r, p, c := canF{did}, canH{did}, canR{did}, canP{did}, canC{did}
	return map[string]http.ResponseWriter{
		"": n,
		"F": struct {
			discardWriter
			canF
		}{n, f},
		"H": struct {
			discardWriter
			canH
		}{n, h},
		"FH": struct {
			discardWriter
			canF
			canH
		}{n, f, h},
		"R": struct {
			discardWriter
			canR
		}{n, r},
		"FR": struct {
			discardWriter
			canF
			canR
		}{n, f, r},
		"HR": struct {
			discardWriter
			canH
			canR
		}{n, h, r},
		"FHR": struct {
			discardWriter
			canF
			canH
			canR
		}{n, f, h, r},
		"P": struct {
			discardWriter
			canP
		}{n, p},
		"FP": struct {
			discardWriter
			canF
			canP
		}{n, f, p},
		"HP": struct {
			discardWriter
			canH
			canP
		}{n, h, p},
		"FHP": struct {
			discardWriter
			canF
			canH
			canP
		}{n, f, h, p},
		"RP": struct {
			discardWriter
			canR
			canP
		}{n, r, p},
		"FRP": struct {
			discardWriter
			canF
			canR
			canP
		}{n, f, r, p},
		"HRP": struct {
			discardWriter
			canH
			canR
			canP
		}{n, h, r, p},
		"FHRP": struct {
			discardWriter
			canF
			canH
			canR
			canP
		}{n, f, h, r, p},
		"C": struct {
			discardWriter
			canC
		}{n, c},
		"FC": struct {
			discardWriter
			canF
			canC
		}{n, f, c},
		"HC": struct {
			discardWriter
			canH
			canC
		}{n, h, c},
		"FHC": struct {
			discardWriter
			canF
			canH
			canC
		}{n, f, h, c},
		"RC": struct {
			discardWriter
			canR
			canC
		}{n, r, c},
		"FRC": struct {
			discardWriter
			canF
			canR
			canC
		}{n, f, r, c},
		"HRC": struct {
			discardWriter
			canH
			canR
			canC
		}{n, h, r, c},
		"FHRC": struct {
			discardWriter
			canF
			canH
			canR
			canC
		}{n, f, h, r, c},
		"PC": struct {
			discardWriter
			canP
			canC
		}{n, p, c},
		"FPC": struct {
			discardWriter
			canF
			canP
			canC
		}{n, f, p, c},
		"HPC": struct {
			discardWriter
			canH
			canP
			canC
		}{n, h, p, c},
		"FHPC": struct {
			discardWriter
			canF
			canH
			canP
			canC
		}{n, f, h, p, c},
		"RPC": struct {
			discardWriter
			canR
			canP
			canC
		}{n, r, p, c},
		"FRPC": struct {
			discardWriter
			canF
			canR
			canP
			canC
		}{n, f, r, p, c},
		"HRPC": struct {
			discardWriter
			canH
			canR
			canP
			canC
		}{n, h, r, p, c},
		"FHRPC": struct {
			discardWriter
			canF
			canH
			canR
			canP
			canC
		}{n, f, h, r, p, c},
	}
}

// use calls every method that a handler finds with a type assertion.
func use(w http.ResponseWriter) {
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
	if c, ok := w.(http.CloseNotifier); ok { //nolint:staticcheck // it is still asked for
		c.CloseNotify()
	}
}

// hiding hides the methods of the inner one from all but a ResponseController.
type hiding struct{ inner http.ResponseWriter }

func (h hiding) Header() http.Header         { return h.inner.Header() }
func (h hiding) Write(p []byte) (int, error) { return h.inner.Write(p) }
func (h hiding) WriteHeader(status int)      { h.inner.WriteHeader(status) }
func (h hiding) Unwrap() http.ResponseWriter { return h.inner }

func TestResponse_HasWhatTheInnerOneHas(t *testing.T) {
	controls := strings.NewReplacer("R", "", "P", "", "C", "")
	var did string
	for can, inner := range writers(&did) {
		t.Run(can, func(t *testing.T) {
			once, twice := NewResponse(inner, nil), NewResponse(NewResponse(inner, nil).Writer(), nil)
			hidden, deep := NewResponse(hiding{inner}, nil), NewResponse(hiding{NewResponse(hiding{inner}, nil).Writer()}, nil)
			for _, own := range []*Response{once, twice, hidden, deep} {
				w := own.Writer()
				did = ""
				use(w)
				want := can
				if own == hidden || own == deep {
					want = ""
				}
				assert.Equal(t, want, did, "by type assertion")
				_, flushes := w.(interface{ FlushError() error })
				assert.Equal(t, strings.Contains(want, "F"), flushes)

				own.w.status, did = 0, ""
				c := http.NewResponseController(w)
				for _, of := range []struct {
					name string
					err  error
				}{{"F", c.Flush()}, {"H", second(c.Hijack())}} {
					assert.Equal(t, strings.Contains(can, of.name), of.err == nil, of.name)
					if of.err != nil {
						assert.ErrorIs(t, of.err, http.ErrNotSupported)
					}
				}
				assert.Equal(t, controls.Replace(can), did, "by a ResponseController")
				assert.Equal(t, did != "", own.Begun(), "it has begun")
				assert.Equal(t, strings.Contains(can, "H"), own.Hijacked())
				for _, err := range []error{c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}), c.EnableFullDuplex()} {
					assert.ErrorIs(t, err, http.ErrNotSupported)
				}
			}
		})
	}
}

func second(_ net.Conn, _ *bufio.ReadWriter, err error) error { return err }

func TestResponse_Begun(t *testing.T) {
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
		w := NewResponse(discardWriter{make(http.Header)}, nil)
		c.do(w.Writer())
		assert.Equal(t, c.status, w.Status(), fmt.Sprint(i))
	}
}
