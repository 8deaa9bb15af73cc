package weirredis

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

// scriptsOwn matches an error of a line of a script itself, for example because a stored string is too short, and the
// error of a command in it about a key with another type. Redis 7 and Valkey put the script's line at the beginning,
// older servers put it after their own words. The error of any other command in a script, such as one that the ACL
// forbids, READONLY or OOM, has no line of the script there.
var scriptsOwn = regexp.MustCompile(`^(ERR Error running script \(call to f_\w+\): @user_script:\d+: )?((ERR )?user_script:\d+: |-?WRONGTYPE )`)

// keyError reports whether an error concerns only one key: another program has stored something under it, the script
// cannot read the stored state, or it is a slotError.
func keyError(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, errAnswer) || errors.Is(err, errStored) {
		return true
	}
	answer, ok := errors.AsType[redis.Error](err)
	return ok && (scriptsOwn.MatchString(answer.Error()) || slotError(err))
}

// slotError reports whether an error concerns only the keys of one slot of a Cluster: it is being moved, no server has it, or the
// servers name each other, also after all redirections that the client follows. The server that says so serves its other slots.
func slotError(err error) bool {
	for _, beginning := range [...]string{"TRYAGAIN ", "MOVED ", "ASK ", "CLUSTERDOWN Hash slot not served"} {
		if err != nil && redis.HasErrorPrefix(err, beginning) {
			return true
		}
	}
	return false
}

// definitionError marks an error of one limiter's definition.
func definitionError(err error) error { return fmt.Errorf("%w: %w", backend.ErrDefinition, err) }
