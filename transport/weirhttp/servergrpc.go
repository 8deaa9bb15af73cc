package weirhttp

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/grpcwire"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// IsGRPC reports whether r is a call of gRPC: a POST over HTTP/2 whose Content-Type is application/grpc, also with the name
// of an encoding as in application/grpc+proto. gRPC-Web is another protocol.
func IsGRPC(r *http.Request) bool {
	if r == nil || r.ProtoMajor != 2 || r.Method != http.MethodPost {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// GRPC is a [Body] for calls of gRPC, also for handlers that proxy them. The rejections of this package use it for every call
// that [IsGRPC] recognizes, whatever [LimitsOptions.Body] is: a client of gRPC takes any other answer for a failure of the
// network.
//
// The status of the answer is 200, as gRPC wants it, and its code is RESOURCE_EXHAUSTED for 429, UNAVAILABLE for 503, and
// DEADLINE_EXCEEDED for 504 and if a [Policy.Timeout] or a timeout of a pipeline is over. Clients send a call again that is
// UNAVAILABLE, so 502 is UNAVAILABLE only if nothing has processed the call: [Rejection.Err] is nil, a rejection of a
// pipeline, or a [*net.OpError] of dialing. Else 502 is UNKNOWN. If the time to wait is known, it is in
// grpc-retry-pushback-ms, which the retries of gRPC honour, and in a google.rpc.RetryInfo of the status. [Measure], and
// strategies further out, see the status of the rejection instead of 200.
func GRPC(w http.ResponseWriter, _ *http.Request, rejection Rejection) {
	code := grpcCodeOf(rejection)
	message := grpcwire.Message(code)
	h := w.Header()
	for _, field := range [...]string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Trailer"} {
		delete(h, field) // a handler further out may have set them for another answer
	}
	h.Set("Content-Type", "application/grpc")
	h.Set(grpcwire.StatusField, strconv.Itoa(int(code)))
	h.Set(grpcwire.MessageField, message)
	switch {
	case code == grpcwire.ResourceExhausted && errors.Is(rejection.Err, limiter.ErrPermitCount):
		h.Set(grpcwire.PushbackField, "-1") // it costs more than the limiter can ever grant
	case rejection.RetryAfter > 0:
		h.Set(grpcwire.PushbackField, strconv.FormatInt(grpcwire.PushbackMillis(rejection.RetryAfter), 10))
		h.Set(grpcwire.StatusDetailsField, grpcwire.StatusDetails(code, message, rejection.RetryAfter))
	}
	handlerio.StandsFor(w, statusToSend(rejection))
	w.WriteHeader(http.StatusOK) // without a body: net/http then sends the header as the trailer, which can be retried
}

// grpcCodeOf returns the code for a rejection.
func grpcCodeOf(rejection Rejection) uint32 {
	if _, ok := errors.AsType[*TimeoutError](rejection.Err); ok {
		return grpcwire.DeadlineExceeded // the handler has begun, so it is not UNAVAILABLE, which clients send again
	}
	switch status := statusToSend(rejection); status {
	case http.StatusBadRequest:
		return grpcwire.InvalidArgument
	case http.StatusUnauthorized:
		return grpcwire.Unauthenticated
	case http.StatusForbidden:
		return grpcwire.PermissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return grpcwire.Unimplemented
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return grpcwire.DeadlineExceeded
	case http.StatusTooManyRequests:
		return grpcwire.ResourceExhausted
	case StatusClientClosedRequest:
		return grpcwire.Canceled
	case http.StatusBadGateway:
		if perhapsProcessed(rejection.Err) {
			return grpcwire.Unknown
		}
		return grpcwire.Unavailable
	case http.StatusServiceUnavailable:
		if _, ok := errors.AsType[*timeout.Error](rejection.Err); ok {
			return grpcwire.DeadlineExceeded
		}
		return grpcwire.Unavailable
	case http.StatusInternalServerError:
		return grpcwire.Internal
	default:
		if status < 500 && rejection.Err == nil { // a Policy.Status of the program
			return grpcwire.ResourceExhausted
		}
		return grpcwire.Unknown
	}
}

// perhapsProcessed reports whether a server may have processed a call that ended with err.
func perhapsProcessed(err error) bool {
	if err == nil || errors.Is(err, pipeline.ErrRejected) || errors.Is(err, pipeline.ErrClosed) {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}
