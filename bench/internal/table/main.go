// Command table reads the output of benchmarks and prints Markdown: the medians of shared limiters, and whether the
// promises that were measured are kept:
//
//	go run ./bench/internal/table bench/results/NAME.txt
//
// The exit code is 1 if a promise is not kept. With -best, only the best run of each benchmark counts. Use it on a
// machine that does other work too, which makes some runs slower and none faster.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	best := flag.Bool("best", false, "count only the best run of each benchmark")
	flag.Parse()
	ok, err := run(flag.Args(), *best, os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reads the files, or in if there are none.
func run(files []string, best bool, in io.Reader, out io.Writer) (ok bool, err error) {
	var m measurements
	if len(files) == 0 {
		if err := m.read(in); err != nil {
			return false, err
		}
	}
	for _, name := range files {
		if err := m.readFile(name); err != nil {
			return false, err
		}
	}
	if best {
		m.keepBest()
	}
	var w strings.Builder
	m.printTables(&w)
	ok = m.printPromises(&w)
	_, err = io.WriteString(out, w.String())
	return ok, err
}
