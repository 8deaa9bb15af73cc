package status

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"time"
)

// The codes of gRPC that a rejection can have.
const (
	Canceled          = 1
	Unknown           = 2
	InvalidArgument   = 3
	DeadlineExceeded  = 4
	PermissionDenied  = 7
	ResourceExhausted = 8
	Unimplemented     = 12
	Internal          = 13
	Unavailable       = 14
	Unauthenticated   = 16
)

// The header fields of an answer of gRPC.
const (
	CodeField     = "Grpc-Status"
	MessageField  = "Grpc-Message"
	DetailsField  = "Grpc-Status-Details-Bin"
	PushbackField = "Grpc-Retry-Pushback-Ms"
)

// Message returns the message of a code. It tells clients nothing about the server.
func Message(code uint32) string {
	switch code {
	case ResourceExhausted:
		return "the quota of calls is exceeded"
	case Unavailable:
		return "the capacity is reduced for the time being"
	case DeadlineExceeded:
		return "the deadline has passed"
	case Canceled:
		return "the call was cancelled"
	case InvalidArgument:
		return "the call cannot be read, or is ambiguous"
	case Internal:
		return "internal error"
	default:
		return "the call was rejected"
	}
}

// Pushback returns the value of grpc-retry-pushback-ms: retryAfter in milliseconds, rounded up and at most what 32 bits hold. If never
// is true, it is -1, so that clients do not try again. If nothing is known, it is "".
func Pushback(retryAfter time.Duration, never bool) string {
	switch {
	case never:
		return "-1"
	case retryAfter > 0:
		return strconv.FormatInt(min(int64((retryAfter-1)/time.Millisecond)+1, math.MaxInt32), 10)
	default:
		return ""
	}
}

// Details returns the value of grpc-status-details-bin: a google.rpc.Status with a google.rpc.RetryInfo.
func Details(code uint32, message string, retryAfter time.Duration) string {
	var wait, retryInfo, detail, status protobuf
	wait.number(1, uint64(retryAfter/time.Second))
	wait.number(2, uint64(retryAfter%time.Second))
	retryInfo.bytes(1, wait)
	detail.bytes(1, []byte("type.googleapis.com/google.rpc.RetryInfo"))
	detail.bytes(2, retryInfo)
	status.number(1, uint64(code))
	status.bytes(2, []byte(message))
	status.bytes(3, detail)
	return base64.RawStdEncoding.EncodeToString(status)
}

// A protobuf is a message of Protocol Buffers.
type protobuf []byte

// number appends a field of a whole number.
func (m *protobuf) number(field, value uint64) {
	*m = binary.AppendUvarint(binary.AppendUvarint(*m, field<<3), value)
}

// bytes appends a field of a string, of bytes or of a message.
func (m *protobuf) bytes(field uint64, value []byte) {
	*m = binary.AppendUvarint(binary.AppendUvarint(*m, field<<3|2), uint64(len(value)))
	*m = append(*m, value...)
}
