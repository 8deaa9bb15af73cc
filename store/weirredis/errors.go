package weirredis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

// keyError reports whether an error concerns only one key: another program has stored something under it, or the script
// cannot read the stored state.
func keyError(err error) bool {
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
	// ERR with a position in the script is an error of the script itself, for example because a stored string is too short.
	// An error of a command in the script, such as READONLY or OOM, begins with the command's code.
	return strings.HasPrefix(text, "WRONGTYPE") || strings.HasPrefix(text, "ERR") && strings.Contains(text, "user_script:")
}

// definitionError marks an error of one limiter's definition.
func definitionError(err error) error { return fmt.Errorf("%w: %w", backend.ErrDefinition, err) }

// outcomeOf returns the Outcome of a key that failed with err.
func outcomeOf(err error) backend.Outcome {
	if keyError(err) {
		return backend.Failed
	}
	return backend.Unreachable
}
