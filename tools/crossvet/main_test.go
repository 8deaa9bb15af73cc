package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const fine = "package a\n\nfunc f() int { return 1 }\n"
	for name, tc := range map[string]struct {
		files    map[string]string
		platform string
		want     string // in what is written or in the error; empty: all is well
	}{
		"all is well":        {map[string]string{"a.go": fine}, "windows/amd64", ""},
		"int has 32 bits":    {map[string]string{"a.go": "package a\n\nvar x int = 1 << 40\n"}, "linux/386", "overflows"},
		"int has 64 bits":    {map[string]string{"a.go": "package a\n\nvar x int = 1 << 40\n"}, "linux/arm64", ""},
		"one system's file":  {map[string]string{"a.go": fine, "a_windows.go": "package a\n\nvar x = missing\n"}, "windows/amd64", "undefined: missing"},
		"another's file":     {map[string]string{"a.go": fine, "a_windows.go": "package a\n\nvar x = missing\n"}, "darwin/arm64", ""},
		"a test":             {map[string]string{"a.go": fine, "a_test.go": "package a\n\nvar x = missing\n"}, "js/wasm", "undefined: missing"},
		"a finding":          {map[string]string{"a.go": "package a\n\nimport \"fmt\"\n\nfunc f() { fmt.Printf(\"%d\", \"x\") }\n"}, "js/wasm", "wrong type string"},
		"a platform's name":  {map[string]string{"a.go": fine}, "windows", "such as windows/amd64"},
		"an unknown one":     {map[string]string{"a.go": fine}, "plan10/amd64", "unsupported GOOS/GOARCH"},
		"nothing to look at": {nil, "linux/arm64", "no packages match"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tc.files {
				write(t, dir, file, text)
			}
			write(t, dir, "go.mod", "module a\n\ngo 1.26\n")
			var out strings.Builder
			err := check(&out, dir, "./...", tc.platform)
			if tc.want == "" {
				if err != nil || out.Len() > 0 {
					t.Fatalf("%v\n%s", err, &out)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			if all := out.String() + err.Error(); !strings.Contains(all, tc.want) {
				t.Fatalf("want %q in:\n%s", tc.want, all)
			}
		})
	}
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
