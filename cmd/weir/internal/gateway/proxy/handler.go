package proxy

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/paced"
)

// A Handler serves the requests of the gateway: each runs through a pipeline whose innermost strategy is a [Table].
type Handler struct {
	pipeline *pipeline.Pipeline
	recorder weirhttp.RequestRecorder // can be nil
	running  atomic.Int64
}

// NewHandler returns a Handler, which tells recorder of each request. If it is nil, nothing is recorded.
func NewHandler(p *pipeline.Pipeline, recorder weirhttp.RequestRecorder) *Handler {
	return &Handler{pipeline: p, recorder: recorder}
}

// Running returns how many requests run, those included whose connection was taken over for a WebSocket.
func (h *Handler) Running() int64 { return h.running.Load() }

// ServeHTTP serves a request:
//
//	ServeHTTP         makes the request's context
//	 Table.Execute    chooses the version of the file
//	  Table.serve     decides which route the request has, if any
//	   route.limited  asks the policies
//	    route.forward sends the request to the upstream
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &request{Context: r.Context(), began: time.Now()}
	answer := &x.answer
	answer.ResponseWriter, answer.paced = w, paced.NewWriter(w)
	finished := false
	h.running.Add(1)
	defer func() { h.end(x, r, finished) }()
	if r.Trailer == nil && len(r.TransferEncoding) > 0 {
		r.Trailer = make(http.Header) // the copies share it; net/http adds a trailer that was not announced to that of r
	}
	answer.duplex(r)
	var endBody func()
	r.Body, endBody = answer.paced.Body(r)
	defer func() {
		if answer.status != http.StatusSwitchingProtocols {
			endBody()
		}
	}()
	err := h.pipeline.Execute(x, func(context.Context) error {
		x.table.serve(answer, r.WithContext(x), x)
		return nil
	})
	if err != nil && answer.status == 0 { // the client has gone, the gateway shuts down, or the registry is closed
		status := http.StatusServiceUnavailable
		if cause := context.Cause(x); cause != nil {
			status = statusOf(x, cause)
		}
		(&Table{}).answer(answer, r, x, status, 0, err)
	}
	answer.paced.Last()
	finished = true
}

// end releases what the request holds, and writes it to the log.
func (h *Handler) end(x *request, r *http.Request, finished bool) {
	x.exchange.End()
	h.running.Add(-1)
	took := time.Since(x.began)
	if h.recorder != nil {
		path := ""
		if x.route != nil {
			path = x.route.path
		}
		weirhttp.RecordRequest(h.recorder, r, path, x.status(), finished, took)
	}
	if x.table != nil && x.table.log != nil {
		x.table.log.write(x, r, took, finished)
	}
}
