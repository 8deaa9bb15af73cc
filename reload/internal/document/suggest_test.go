package document

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		got  string
		want string
		from []string
	}{
		{"maxRetries", "max_retries", []string{"delay", "max_retries"}},
		{"max-retry", "max_retries", []string{"max_delay", "max_retries"}},
		{"dealy", "delay", []string{"delay", "max_delay"}},
		{"expo", "exponential", []string{"constant", "linear", "exponential"}},
		{"max", "", []string{"max_delay", "max_retries"}},
		{"zzz", "", []string{"retry", "timeout"}},
		{"", "", []string{"a"}},
		{"b", "", []string{"a", "c"}},
	} {
		assert.Equal(t, c.want, Nearest(c.got, c.from), c.got)
	}
}
