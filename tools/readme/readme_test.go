// Package readme compiles the code that README.md and the pages in docs show.
package readme

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/reload"
)

const root = "../.."

func TestReadme_Begins(t *testing.T) {
	blocks := readPage(t, "README.md")
	require.Len(t, blocks, 7)
	assert.LessOrEqual(t, blocks[0].line, 25, "the first program stands further down")
}

// The decisions lie a directory further down and are left out: they show what was
// thought of, too.
func TestPagesCompile(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	codes := map[string]string{}
	for _, p := range append(pages, filepath.Join(root, "README.md")) {
		page, err := filepath.Rel(root, p)
		require.NoError(t, err)
		for _, b := range readPage(t, page) {
			codes[fmt.Sprintf("%s line %d", page, b.line)] = b.code
		}
	}
	compile(t, codes)
}

// readPage returns the blocks of Go of a page. It checks those of YAML.
func readPage(t *testing.T, page string) []block {
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	checkConfigurations(t, page, string(text))
	blocks, err := goBlocks(string(text))
	require.NoError(t, err, page)
	return blocks
}

// checkConfigurations has package reload read every block of YAML on a page that is a
// whole file.
func checkConfigurations(t *testing.T, page, text string) {
	kinds := reload.NewKinds()
	kinds.AcceptUnknown() // pages name functions of programs
	for _, part := range strings.Split(text, "```yaml\n")[1:] {
		content, _, _ := strings.Cut(part, "```")
		if !strings.Contains(content, "pipelines:") {
			continue
		}
		_, err := reload.Parse(page, []byte(content), kinds)
		assert.NoError(t, err)
	}
}

type block struct {
	line int
	code string
}

// goBlocks returns the fenced blocks of Go. One that is indented, or called
// something else that means Go, would be passed over: that is an error.
func goBlocks(text string) (blocks []block, err error) {
	var b *block
	for i, line := range strings.Split(text, "\n") {
		fence, rest, isFence := strings.Cut(line, "```")
		language := strings.TrimSpace(rest)
		switch {
		case line == "```go":
			b = &block{line: i + 2}
		case line == "```" && b != nil:
			blocks = append(blocks, *b)
			b = nil
		case b != nil:
			b.code += line + "\n"
		case isFence && strings.TrimSpace(fence) == "" && (strings.HasPrefix(language, "go") || language == "Go"):
			return nil, fmt.Errorf("line %d: begin a block of Go with ```go at the beginning of the line", i+1)
		}
	}
	if b != nil {
		return nil, fmt.Errorf("line %d: the block is not closed", b.line-1)
	}
	return blocks, nil
}

func TestGoBlocks(t *testing.T) {
	blocks, err := goBlocks("text\n```go\na\n\tb\n```\n```yaml\nc\n```\n```go\n```\n")
	require.NoError(t, err)
	assert.Equal(t, []block{{3, "a\n\tb\n"}, {10, ""}}, blocks)

	for _, text := range []string{"- text\n  ```go\n  a\n  ```\n", "```golang\n```\n", "``` go\n```\n", "```go\na\n"} {
		_, err := goBlocks(text)
		assert.Error(t, err, text)
	}
}
