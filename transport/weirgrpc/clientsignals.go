package weirgrpc

import (
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A comeback is what a server says about another attempt.
type comeback struct {
	wait  time.Duration
	asked bool // the server asks for another attempt after wait
	never bool // the server asks for no other attempt
}

// comebackOf returns what the trailer says, or what the details of the status say if the trailer says nothing.
func comebackOf(trailer metadata.MD, s *status.Status) comeback {
	if lines := trailer[pushbackTrailer]; len(lines) > 0 {
		wait, ok := parsePushback(lines)
		return comeback{wait: wait, asked: ok, never: !ok}
	}
	wait, ok := retryInfoOf(s)
	return comeback{wait: wait, asked: ok}
}

// parsePushback parses the trailer. ok is false if the server asks for no other attempt: the number is negative, or it is
// not a 32-bit number in its shortest form, or there are several.
func parsePushback(lines []string) (wait time.Duration, ok bool) {
	if len(lines) != 1 {
		return 0, false
	}
	ms, err := strconv.ParseInt(lines[0], 10, 32)
	if err != nil || ms < 0 || strconv.FormatInt(ms, 10) != lines[0] {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// retryInfoOf returns the delay of the first RetryInfo in the details of the status. A RetryInfo without a delay asks for
// another attempt at once. One with an invalid or negative delay says nothing.
func retryInfoOf(s *status.Status) (wait time.Duration, ok bool) {
	for _, detail := range s.Proto().GetDetails() {
		var info errdetails.RetryInfo
		if !detail.MessageIs(&info) || detail.UnmarshalTo(&info) != nil {
			continue
		}
		if delay := info.GetRetryDelay(); delay != nil {
			if delay.CheckValid() != nil || delay.AsDuration() < 0 {
				return 0, false
			}
			wait = delay.AsDuration()
		}
		return wait, true
	}
	return 0, false
}
