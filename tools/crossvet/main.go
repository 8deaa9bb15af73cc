// Command crossvet checks that packages compile and vets them for other platforms, tests included:
//
//	crossvet -C ../.. windows/amd64 js/wasm
//
// It stands for `go vet work` with GOOS and GOARCH set, and runs the analyzers of go vet. But go vet compiles the
// standard library and every dependency for each platform first, which takes minutes where the build cache is empty.
// crossvet only checks their types, which takes seconds. It sees no error of the compiler's back end or of the linker.
//
// It is a module of its own, outside of the workspace: programs that use weir do not get its dependencies, and it
// does not choose the versions of weir's.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/packages"
)

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "usage: crossvet [-C directory] OS/ARCH...") }
	dir := flag.String("C", ".", "the workspace's directory")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	failed := false
	for _, platform := range flag.Args() {
		fmt.Println("== platforms:", platform)
		if err := check(os.Stderr, *dir, "work", platform); err != nil {
			fmt.Fprintf(os.Stderr, "crossvet: %s: %v\n", platform, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check writes what is wrong with the packages to w, and returns an error if that is anything.
func check(w io.Writer, dir, pattern, platform string) error {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("a platform is an OS and an architecture such as windows/amd64, got %q", platform)
	}
	found, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax | packages.NeedModule,
		Dir:   dir,
		Env:   append(os.Environ(), "GOWORK=", "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		Tests: true,
	}, pattern)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no packages match %s", pattern)
	}
	problems := 0
	packages.Visit(found, nil, func(p *packages.Package) {
		for _, err := range p.Errors {
			fmt.Fprintln(w, err)
			problems++
		}
	})
	if problems > 0 {
		return fmt.Errorf("%d errors", problems)
	}
	graph, err := checker.Analyze(vet.Suite, found, nil)
	if err != nil {
		return err
	}
	for _, action := range graph.Roots {
		if action.Err != nil {
			return action.Err
		}
		problems += len(action.Diagnostics)
	}
	if err := graph.PrintText(w, 0); err != nil {
		return err
	}
	if problems > 0 {
		return fmt.Errorf("%d findings of vet", problems)
	}
	return nil
}
