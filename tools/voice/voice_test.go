// Package voice holds the words of the repository to plain English: it refuses words that make a sentence hard to read.
package voice

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/tools/repo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// banned are words and what to write instead: who or what is meant ("no caller"), the noun again ("the limiters that"), again,
// forever, also or other than, compute or count, is ignored, as before, is up to, can, report whether, so that … not; nothing in
// place of "(null)".
var banned = regexp.MustCompile(`\b(nobody|somebody|whoever|who\s+asks|those\s+that|anew|for\s+ever|besides|reckon(s|ed|ing)?|` +
	`of\s+no\s+(account|use)|as\s+ever|is\s+the\s+matter\s+of|may\s+well|tells?\s+whether|lest)\b|\(null\)`)

// quoted is what a sentence may name: a code span, which does not go on in the next paragraph, and up to four words in quotation
// marks.
var quoted = regexp.MustCompile("`(?:[^`\n]|\n[^`\n])+`" + `|["“]\(?\w+(\s+\w+){0,3}\)?["”]`)

// find returns the banned words in prose.
func find(prose string) []string {
	lower := bytes.ToLower([]byte(prose))
	if !banned.Match(lower) { // nearly always
		return nil
	}
	return banned.FindAllString(quoted.ReplaceAllString(string(lower), ""), -1)
}

func TestVoice(t *testing.T) {
	root, err := repo.Root()
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
		case filepath.Ext(file) == ".go":
			return checkGo(t, file)
		case slices.Contains([]string{".md", ".yaml", ".yml", ".sql", ".lua"}, filepath.Ext(file)),
			d.Name() == "Makefile", filepath.Base(filepath.Dir(file)) == "scripts":
			text, err := os.ReadFile(file)
			// The comments of a code block are read with the page.
			assert.Empty(t, find(strings.ReplaceAll(string(text), "```", "")), file)
			return err
		}
		return nil
	}))
}

// checkGo reads the comments of a file, and the strings of more than one word if it is no test.
func checkGo(t *testing.T, file string) error {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, c := range parsed.Comments {
		assert.Empty(t, find(c.Text()), files.Position(c.Pos()))
	}
	if strings.HasSuffix(file, "_test.go") {
		return nil
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && strings.Contains(s.Value, " ") {
			assert.Empty(t, find(strings.Trim(s.Value, "\"`")), files.Position(s.Pos()))
		}
		return true
	})
	return nil
}

func TestFind(t *testing.T) {
	assert.Equal(t, []string{"nobody", "of\nno account", "(null)"}, find("Nobody knows, it is of\nno account: x/(null)/y"))
	assert.Empty(t, find("the latest reckoner, `nobody`, and no \"anew\""))
}
