package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the picture and the access log")

const (
	picture   = "../../docs/images/limiters.svg"
	accessLog = "access.log.gz"
)

// The picture of the README is what the program draws, and the log is what it writes.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	drawn, logged := filepath.Join(dir, "limiters.svg"), filepath.Join(dir, "access.log.gz")
	if *update {
		drawn, logged = picture, accessLog
	}
	if err := run(t.Context(), []string{"-limiters", drawn, "-log", logged}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, drawn), content(t, picture)) {
		t.Error("docs/images/limiters.svg is not what the program draws: run go test . -update, and look at it in a browser")
	}
	// Another version of Go can compress the log otherwise.
	if !bytes.Equal(unzipped(t, logged), unzipped(t, accessLog)) {
		t.Error("access.log.gz is not what the program writes: run go test . -update")
	}
}

func TestRun_NothingToDo(t *testing.T) {
	if err := run(t.Context(), nil, io.Discard); err == nil {
		t.Error("no error")
	}
}

func content(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unzipped(t *testing.T, name string) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(content(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
