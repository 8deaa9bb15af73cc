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

type (
	canFlush  struct{ did *string }
	canHijack struct{ did *string }
	canRest   struct{ did *string }
)

func (c canFlush) Flush() { *c.did += "F" }

func (c canHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	*c.did += "H"
	return nil, nil, nil
}

func (c canRest) ReadFrom(src io.Reader) (int64, error) {
	*c.did += "R"
	return io.Copy(io.Discard, src)
}

func (c canRest) Push(string, *http.PushOptions) error {
	*c.did += "P"
	return nil
}

func (c canRest) CloseNotify() <-chan bool {
	*c.did += "C"
	return make(chan bool)
}

// writers returns ResponseWriters by the optional methods that they have.
func writers(did *string) map[string]http.ResponseWriter {
	n := discardWriter{make(http.Header)}
	return map[string]http.ResponseWriter{
		"": n,
		"F": struct {
			discardWriter
			canFlush
		}{n, canFlush{did}},
		"H": struct {
			discardWriter
			canHijack
		}{n, canHijack{did}},
		"FH": struct {
			discardWriter
			canFlush
			canHijack
		}{n, canFlush{did}, canHijack{did}},
	}
}

// The other optional methods are always there, and use those of the inner one.
func TestResponse_OptionalMethods(t *testing.T) {
	did := ""
	without := discardWriter{make(http.Header)}
	with := struct {
		discardWriter
		canRest
	}{without, canRest{&did}}
	for inner, want := range map[http.ResponseWriter]error{&with: nil, &without: http.ErrNotSupported} {
		own := NewResponse(inner, nil)
		w := own.Writer()
		n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("text"))
		assert.NoError(t, err)
		assert.EqualValues(t, 4, n)
		assert.Equal(t, http.StatusOK, own.Status())
		assert.ErrorIs(t, w.(http.Pusher).Push("/", nil), want)
		assert.Equal(t, want == nil, w.(http.CloseNotifier).CloseNotify() != nil) //nolint:staticcheck // it is still asked for
	}
	assert.Equal(t, "RPC", did)
}

// hiding hides the methods of the inner one from all but a ResponseController.
type hiding struct{ inner http.ResponseWriter }

func (h hiding) Header() http.Header         { return h.inner.Header() }
func (h hiding) Write(p []byte) (int, error) { return h.inner.Write(p) }
func (h hiding) WriteHeader(status int)      { h.inner.WriteHeader(status) }
func (h hiding) Unwrap() http.ResponseWriter { return h.inner }

func TestResponse_HasWhatTheInnerOneHas(t *testing.T) {
	var did string
	for can, inner := range writers(&did) {
		for name, own := range map[string]*Response{
			"once": NewResponse(inner, nil), "twice": NewResponse(NewResponse(inner, nil).Writer(), nil),
			"hidden": NewResponse(hiding{inner}, nil), "deep": NewResponse(hiding{NewResponse(hiding{inner}, nil).Writer()}, nil),
		} {
			t.Run(can+" "+name, func(t *testing.T) {
				did = ""
				w := own.Writer()
				f, flushes := w.(http.Flusher)
				assert.Equal(t, strings.Contains(can, "F"), flushes)
				if flushes {
					f.Flush()
				}
				h, hijacks := w.(http.Hijacker)
				assert.Equal(t, strings.Contains(can, "H"), hijacks)
				if hijacks {
					assert.NoError(t, second(h.Hijack()))
				}
				assert.Equal(t, can, did, "by type assertion")

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
				assert.Equal(t, can, did, "by a ResponseController")
				assert.Equal(t, did != "", own.Begun(), "it has begun")
				assert.Equal(t, strings.Contains(can, "H"), own.Hijacked())
				for _, err := range []error{c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}), c.EnableFullDuplex()} {
					assert.ErrorIs(t, err, http.ErrNotSupported)
				}
			})
		}
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
