// Package readme compiles the code that README.md shows.
package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// fragment is put around code that is not a program by itself: the names that it
// takes for granted.
const fragment = `package main

import (
	"context"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

type Order struct{}

type orderClient struct{}

func (orderClient) Order(context.Context, int) (*Order, error) { return nil, nil }

func main() {
	var (
		ctx    = context.Background()
		bucket limiter.Limiter
		client orderClient
		id     int
	)
	%s
	_, _ = order, err
}
`

func TestReadmeCompiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	blocks := goBlocks(string(text))
	require.Len(t, blocks, 2)
	assert.LessOrEqual(t, blocks[0].line, 25, "the first program stands further down")
	for _, b := range blocks {
		t.Run(fmt.Sprintf("line %d", b.line), func(t *testing.T) { compile(t, b.code) })
	}
}

type block struct {
	line int
	code string
}

// goBlocks returns the fenced blocks of Go.
func goBlocks(text string) (blocks []block) {
	var b *block
	for i, line := range strings.Split(text, "\n") {
		switch {
		case line == "```go":
			b = &block{line: i + 2}
		case line == "```" && b != nil:
			blocks = append(blocks, *b)
			b = nil
		case b != nil:
			b.code += line + "\n"
		}
	}
	return blocks
}

// compile builds a program of this module that is not on the disk.
func compile(t *testing.T, code string) {
	if !strings.HasPrefix(code, "package ") {
		code = fmt.Sprintf(fragment, code)
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
	here, err := filepath.Abs("program")
	require.NoError(t, err)
	files, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "main.go"): file}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, files, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", filepath.Join(dir, "program"), "./program").CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, code)
}
