package weirpostgres

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-go/weir/store/backend"
)

// SQLSTATEs with their own treatment.
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
)

func repeatable(err error) bool {
	code := codeOf(err)
	return code == serializationFailure || code == deadlockDetected
}

func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// keyError reports whether a statement has failed because of one of its keys, such as a number that is out of range or
// text that is too long for an index. The statement has done nothing for any key, and can succeed without the key that
// caused the error.
func keyError(err error) bool {
	code := codeOf(err)
	for _, class := range []string{"22", "23", "54", "P0"} { // data, constraints, program limits, errors of triggers
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

// definitionError marks an error of one limiter's definition.
func definitionError(err error) error { return fmt.Errorf("%w: %w", backend.ErrDefinition, err) }

// maxName is the length of the longest name, in bytes: name and key must fit into a row of an index, and into a notice.
const maxName = 500

// checkName returns an error for a name that PostgreSQL cannot store as text, or that is too long.
func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("the name %q… of a limiter has %d bytes, more than %d", strings.ToValidUTF8(name[:20], "?"), len(name), maxName)
	case !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return fmt.Errorf("the name %q of a limiter must be valid UTF-8 and have no zero bytes", name)
	}
	return nil
}

func checkDefinition(d *backend.Definition) error {
	if d == nil {
		return errors.New("the definition is nil")
	}
	return checkName(d.Name)
}

// checkSchedule is checkDefinition for buckets and windows: the server divides by the period.
func checkSchedule(d *backend.Definition) error {
	if err := d.Check(); err != nil {
		return err
	}
	return checkName(d.Name)
}
