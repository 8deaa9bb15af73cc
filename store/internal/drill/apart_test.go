package drill

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestApart(t *testing.T) {
	Apart(t, func() { assert.NotEmpty(t, os.Getenv(childVariable), "it runs in the process of the others") })
}

func TestOnlyOf(t *testing.T) {
	for asked, want := range map[string]string{
		"": "^TestA$/^b\\+c$", "TestA": "^TestA$/^b\\+c$", "Test/b": "^TestA$/^b\\+c$", "A/b/c/d": "^TestA$/^b\\+c$/c/d",
		"B|A/b/c": "^TestA$/^b\\+c$",
	} {
		assert.Equal(t, want, onlyOf(asked, "TestA/b+c"), asked)
	}
}
