package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLinks checks that every relative link between Markdown files leads to a file, and every fragment to a heading.
func TestLinks(t *testing.T) {
	pages := markdownFiles(t)
	require.Contains(t, pages, "README.md")
	for page, text := range pages {
		for _, target := range links(text) {
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file, fragment, _ := strings.Cut(target, "#")
			to := page
			if file != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(page), file))
				_, err := os.Stat(filepath.Join(root, to))
				if !assert.NoError(t, err, "%s links to %s", page, target) {
					continue
				}
			}
			if fragment != "" {
				assert.Contains(t, anchors(pages[to]), fragment, "%s links to %s", page, target)
			}
		}
	}
}

// markdownFiles returns the text of every Markdown file of the repository by its path, with slashes.
func markdownFiles(t *testing.T) map[string]string {
	pages := make(map[string]string)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page, err := filepath.Rel(root, path)
		pages[filepath.ToSlash(page)] = string(text)
		return err
	}))
	return pages
}

var (
	fenced     = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan   = regexp.MustCompile("`[^`\n]*`")
	linkTarget = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// links returns the targets of the inline links outside of code.
func links(text string) (targets []string) {
	text = codeSpan.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")
	for _, m := range linkTarget.FindAllStringSubmatch(text, -1) {
		targets = append(targets, m[1])
	}
	return targets
}

// anchors returns the fragments that GitHub makes of the headings. Of headings that are the same it has only the first.
func anchors(text string) (fragments []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		fragments = append(fragments, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return fragments
}

func TestLinksAndAnchors(t *testing.T) {
	page := "# Who `may` import, and whom?\n[a](b.md#c) and `[no](link)`\n```\n[no](link)\n# no heading\n```\n"
	assert.Equal(t, []string{"b.md#c"}, links(page))
	assert.Equal(t, []string{"who-may-import-and-whom"}, anchors(page))
}
