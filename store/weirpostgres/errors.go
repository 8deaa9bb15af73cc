package weirpostgres

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-go/weir/store/backend"
)

// SQLSTATEs that we know what to do about.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	undefinedSchema      = "3F000"
	undefinedTable       = "42P01"
	undefinedFunction    = "42883"
	undefinedColumn      = "42703"
	undefinedStatement   = "26000"
	duplicateStatement   = "42P05"
	readOnly             = "25006"
	lockNotAvailable     = "55P03"
	featureNotSupported  = "0A000"
)

func worthRepeating(err error) bool {
	code := codeOf(err)
	return code == serializationFailure || code == deadlockDetected
}

func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// ofTheKeys reports whether a statement has failed because of the rows of some key, such as a number that is out of
// range or text that is too long for an index. Then nothing has been done for the other keys, either, and they can be
// asked about without that one.
func ofTheKeys(err error) bool {
	code := codeOf(err)
	for _, class := range []string{"22", "23", "54", "P0"} { // data, constraints, limits of the program, raised by a trigger
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

// ofDefinition marks the error of one limiter's definition.
func ofDefinition(err error) error { return fmt.Errorf("%w: %w", backend.ErrDefinition, err) }

// explained says what was asked, and where we know it what to do about the error.
func (b *Backend) explained(what string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch codeOf(err) {
	case undefinedSchema, undefinedTable, undefinedFunction, undefinedColumn:
		hint = fmt.Sprintf("schema %q is missing or older than this program: call Migrate, or run the files in the folder migrations: ", b.schema)
	case serializationFailure:
		hint = "sessions must be at isolation level read committed: "
	case undefinedStatement, duplicateStatement:
		hint = "behind a pooler in transaction mode the pool needs default_query_exec_mode=exec: "
	case lockNotAvailable:
		hint = "another session has a lock: "
	case readOnly:
		hint = "the server is read-only, a standby perhaps: "
	}
	return fmt.Errorf("weirpostgres: %s: %s%w", what, hint, err)
}

// maxName is the longest name, in bytes: name and key have to fit into a row of an index, and into a notice.
const maxName = 500

// checkName returns an error for what a text in PostgreSQL cannot be.
func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("the name %q… of a limiter has %d bytes, more than %d", strings.ToValidUTF8(name[:20], "?"), len(name), maxName)
	case !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return fmt.Errorf("the name %q of a limiter is not valid UTF-8 without zero bytes", name)
	}
	return nil
}

func checkDefinition(d *backend.Definition) error {
	if d == nil {
		return errors.New("a definition is nil")
	}
	return checkName(d.Name)
}

// checkGrid is checkDefinition for what is decided by a grid: the server is to divide by the period.
func checkGrid(d *backend.Definition) error {
	if err := checkDefinition(d); err != nil {
		return err
	}
	if d.Kind < backend.KindTokenBucket || d.Kind > backend.KindSlidingWindow {
		return fmt.Errorf("limiter %q: a %v has no grid", d.Name, d.Kind)
	}
	if d.Period <= 0 || d.Refill < 0 {
		return fmt.Errorf("limiter %q: period %d, refill %d", d.Name, d.Period, d.Refill)
	}
	return nil
}
