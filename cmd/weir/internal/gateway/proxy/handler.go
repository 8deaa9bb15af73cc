package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/accesslog"
)

// A Handler serves the requests of the gateway: each runs through a pipeline whose innermost strategy is a [Table].
type Handler struct {
	pipeline      *pipeline.Pipeline
	recorder      weirhttp.RequestRecorder // can be nil
	running       atomic.Int64
	stall, linger time.Duration
}

// NewHandler returns a Handler, which tells recorder of each request. If it is nil, nothing is recorded.
func NewHandler(p *pipeline.Pipeline, recorder weirhttp.RequestRecorder) *Handler {
	return &Handler{pipeline: p, recorder: recorder, stall: stallTime, linger: lingerTime}
}

// Running returns how many requests run, those included whose connection was taken over for a WebSocket.
func (h *Handler) Running() int64 { return h.running.Load() }

// ServeHTTP serves a request:
//
//	ServeHTTP         makes the request's context
//	 Table.Execute    chooses the version of the file
//	  Table.serve     refuses what no route should see
//	   route          asks the policies
//	    route.forward sends the request to the upstream
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handled(r.Context())
	x := &request{Context: r.Context(), began: time.Now()}
	answer := &x.answer
	answer.ResponseWriter, answer.paced = w, newPacedWriter(w, r, h.stall)
	finished := false
	h.running.Add(1)
	defer func() { h.end(x, r, finished) }()
	if r.Trailer == nil && len(r.TransferEncoding) > 0 {
		r.Trailer = make(http.Header) // the copies share it; net/http adds a trailer that was not announced to that of r
	}
	answer.duplex(r)
	var paced func()
	r.Body, paced = h.paced(w, r)
	defer func() {
		if !x.switched {
			paced()
		}
	}()
	copied := r.WithContext(x)
	err := h.pipeline.Execute(x, func(context.Context) error {
		x.table.serve(answer, copied, x)
		return nil
	})
	if err != nil && answer.status == 0 { // the registry is closed
		(&Table{}).answer(answer, r, x, http.StatusServiceUnavailable, 0, err)
	}
	answer.paced.last()
	finished = true
}

// end releases what the request holds, and writes it to the log.
func (h *Handler) end(x *request, r *http.Request, finished bool) {
	x.exchange.End()
	h.running.Add(-1)
	took, status := time.Since(x.began), x.status()
	if h.recorder != nil {
		path := ""
		if x.route != nil {
			path = x.route.path
		}
		weirhttp.RecordRequest(h.recorder, r, path, status, finished, took)
	}
	if x.table == nil || x.table.log == nil {
		return
	}
	entry := accesslog.Entry{
		Began: x.began, Took: took, Request: r, Client: x.table.trust.address(r),
		Status: status, Sent: x.answer.bytes.Load(), Aborted: !finished, Fault: x.fault,
		Policy: x.decisions.policy, Decision: x.decisions.decision, Waited: x.decisions.waited,
	}
	entry.Attempts, entry.Address = x.exchange.Attempts()
	if x.route != nil {
		entry.Route, entry.Upstream = x.route.Match, x.route.Upstream.Name()
		if key := x.table.policies[x.decisions.policy].Key; key != nil {
			entry.Key = key(x.routed)
		}
	}
	x.table.log.Write(&entry)
}

// errRefused is for the access log.
var errRefused = errors.New("the server could not read the request, or does not serve such requests")

// Refused writes a request to the log that the server has answered without the handler. Nothing is known of it but the client.
func (h *Handler) Refused(client net.Addr, status int) {
	x := &request{Context: context.Background(), began: time.Now()}
	_ = h.pipeline.Execute(x, func(context.Context) error {
		if x.table.log == nil {
			return nil
		}
		host := ""
		if peer, err := netip.ParseAddrPort(client.String()); err == nil {
			host = peer.Addr().Unmap().String()
		}
		x.table.log.Write(&accesslog.Entry{
			Began: x.began, Request: &http.Request{URL: new(url.URL)}, Client: host, Status: status, Fault: errRefused,
		})
		return nil
	})
}
