package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"time"
)

const (
	// writeTimeout bounds the write of one update: a client that does not read is let go.
	writeTimeout = 10 * time.Second
	// maxStreamAge is after how long a stream ends. The page opens another one, and the program's authentication is asked
	// again.
	maxStreamAge = 10 * time.Minute
)

// serveStream serves the updates of one page as server-sent events: a section for each part that has changed, a tick for
// each snapshot. If there are too many streams, the only event is refused, with the reason: a browser takes an error status
// for final and does not show its text.
func (d *Dashboard) serveStream(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // nginx and others: pass each event on at once
	if r.Method == http.MethodHead {
		return // no stream is opened
	}
	name := r.URL.Query().Get("page")
	if sectionOf(name) == nil {
		name = pageOverview
	}
	s := stream{writer: w, controller: http.NewResponseController(w), sent: map[string]uint64{}}
	// The server's ReadTimeout would end the stream, and its WriteTimeout every one that is older. A server that cannot change
	// its timeouts ends the stream by them, and the page opens another one.
	_ = s.controller.SetReadDeadline(time.Time{})
	if text := d.refuse(); text != "" {
		_ = s.send("refused", text, 30*time.Second)
		return
	}
	defer d.streams.Add(-1)
	end := time.NewTimer(maxStreamAge)
	defer end.Stop()
	snap, err := d.snapshot(r.Context(), tick/2)
	if err != nil {
		return
	}
	_, next := d.newest()
	for {
		if snap != nil {
			if s.update(newView(snap, name, filterOf(r), formatHTML), len(snap.Trouble)) != nil {
				return
			}
		}
		snap = nil
		select {
		case <-r.Context().Done():
			return
		case <-d.closed:
			_ = s.send("closed", "the dashboard is closed", 5*time.Second)
			return
		case <-end.C:
			return
		case <-next:
			snap, next = d.newest()
		}
	}
}

// refuse counts a stream, or returns why there can be no other.
func (d *Dashboard) refuse() string {
	select {
	case <-d.closed:
		return "The dashboard is closed."
	default:
	}
	n, most := d.streams.Add(1), int64(max(d.options.MaxStreams, 0))
	if n <= most {
		return ""
	}
	d.streams.Add(-1)
	if most == 0 {
		return "Live updates are switched off. This page asks every 5 s instead."
	}
	return fmt.Sprintf("There are %d pages with live updates, which is the most. This page asks every 5 s instead.", most)
}

// A stream writes events to one client.
type stream struct {
	writer     http.ResponseWriter
	controller *http.ResponseController
	sent       map[string]uint64 // the hashes of the sections that the client has
}

// A fragment is a section in an event.
type fragment struct {
	ID   string        `json:"id"`
	HTML template.HTML `json:"html"`
}

// update sends the sections that have changed, and the time, in one write.
func (s *stream) update(v *view, troubles int) error {
	var b bytes.Buffer
	for _, part := range v.Parts {
		html := part.HTML()
		h := fnv.New64a()
		_, _ = h.Write([]byte(html))
		if sum := h.Sum64(); s.sent[part.Section] != sum {
			s.sent[part.Section] = sum
			appendEvent(&b, "section", fragment{part.ID(), html})
		}
	}
	appendEvent(&b, "tick", map[string]any{"time": v.Time.Format(time.RFC3339), "trouble": troubles})
	return s.write(b.Bytes())
}

// send sends one event and after how long a client may come back.
func (s *stream) send(event, text string, retry time.Duration) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "retry: %d\n", retry.Milliseconds())
	appendEvent(&b, event, text)
	return s.write(b.Bytes())
}

func appendEvent(b *bytes.Buffer, event string, data any) {
	text, _ := json.Marshal(data) // one line
	fmt.Fprintf(b, "event: %s\ndata: %s\n\n", event, text)
}

// write writes within writeTimeout, whatever the timeouts of the server are.
func (s *stream) write(b []byte) error {
	_ = s.controller.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.writer.Write(b); err != nil {
		return err
	}
	return s.controller.Flush() // a writer that cannot flush cannot stream: the page polls
}
