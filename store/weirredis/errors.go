package weirredis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

// ofTheKey reports whether an error is that of one key, and says nothing of the server: something else is stored
// under the key, or the script does not understand what is.
func ofTheKey(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, errAnswer) || errors.Is(err, errStored) || errors.Is(err, errDefinition) {
		return true
	}
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := answer.Error()
	// An error of a command in a script, such as READONLY or OOM, begins with its own code. ERR with the place in
	// the script is the script's own: a number that is none, a text that is too short.
	return strings.HasPrefix(text, "WRONGTYPE") || strings.HasPrefix(text, "ERR") && strings.Contains(text, "user_script:")
}

// ofDefinition marks the error of one limiter's definition.
func ofDefinition(err error) error { return fmt.Errorf("%w: %w", backend.ErrDefinition, err) }

// outcomeOf is the Outcome of a key that could not be asked because of err.
func outcomeOf(err error) backend.Outcome {
	if ofTheKey(err) {
		return backend.Failed
	}
	return backend.Unreachable
}
