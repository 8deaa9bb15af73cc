package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/repo"
)

// mayCallNow are the files in which a function may read the wall clock, each with its reason.
var mayCallNow = map[string]string{
	"internal/deadline/context.go": "a Deadline goes to others, who compare it with the clock on their wall",
	"limiter/calendar.go":          "days and months are those of the wall clock",
}

// nowInFunction matches a line of a function, which is indented and no comment or begins with func, with a use of the wall clock.
var nowInFunction = regexp.MustCompile(`(?m)^(?:\t+[^/\t\n]|func ).*\btime\.Now\b.*$`)

// Reading the wall clock costs twice what time.Since on a base costs, so the hot path has a base: a
// package variable, which is where time.Now is allowed.
func TestHotPathReadsNoWallClock(t *testing.T) {
	root, err := repo.Root()
	require.NoError(t, err)
	packages, err := repo.List(root, "./...")
	require.NoError(t, err)
	for _, p := range packages {
		top, _, _ := strings.Cut(p.Folder(), "/")
		hot := top == "limiter" || top == "pipeline" || top == "strategies" || p.Folder() == "internal/deadline"
		if !hot || p.Folder() == "limiter/limitertest" || p.Folder() == "limiter/internal/model" {
			continue
		}
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			found := nowInFunction.FindAllString(string(text), -1)
			if file := p.Folder() + "/" + name; mayCallNow[file] != "" {
				assert.NotEmpty(t, found, "%s does not call time.Now any more: take it out of mayCallNow", file)
			} else {
				assert.Empty(t, found, "%s: use time.Since on a package-level base, or give the file its reason in mayCallNow", file)
			}
		}
	}
}
