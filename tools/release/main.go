// Command release makes a release of every module of this repository. Run it as scripts/release:
//
//	scripts/release v0.2.0          # commits and tags, ready to be pushed
//	scripts/release -n v0.2.0 DIR   # the same release as a module proxy in DIR; the repository stays as it is
//
// docs/releasing.md is its manual.
//
// The go command itself makes the zips, from a temporary git repository with the tags of the release. A zip has rules
// that its hash depends on: a nested module without a LICENSE gets the root's, for example, and golang.org/x/mod/zip
// does not do that. A go.sum with another hash than the one of the real tag keeps the tag from building.
//
// Release is a module of its own, outside of the workspace: programs that use weir do not get its dependencies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], time.Now().UTC(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
	}
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

const usage = `usage:
  scripts/release [-branch NAME] VERSION   commit and tag the release; push nothing
  scripts/release -n VERSION DIR           write the release to DIR as a module proxy; change nothing else

flags:
`

func run(ctx context.Context, args []string, now time.Time, out io.Writer) error {
	var help strings.Builder
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(&help)
	flags.Usage = func() {
		fmt.Fprint(&help, usage)
		flags.PrintDefaults()
	}
	dir := flags.String("C", ".", "the repository's `directory`")
	branch := flags.String("branch", "main", "the `name` of the branch that is released")
	dryRun := flags.Bool("n", false, "write a module proxy and change nothing")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(out, help.String())
		return err
	case err != nil:
		return fmt.Errorf("%w: %s", errUsage, &help)
	}
	want := 1
	if *dryRun {
		want = 2
	}
	if flags.NArg() != want {
		flags.Usage()
		return fmt.Errorf("%w: %d arguments, want %d\n%s", errUsage, flags.NArg(), want, &help)
	}
	root, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	version, repo := flags.Arg(0), repository{dir: root}
	s, problems, err := prepare(ctx, repo, version, *branch, now)
	if err != nil {
		return err
	}
	defer s.remove()
	if !*dryRun {
		if err := errors.Join(problems...); err != nil {
			return fmt.Errorf("%s is refused:\n%w", version, err)
		}
		return release(ctx, repo, s, *branch, out)
	}
	for _, problem := range problems {
		fmt.Fprintln(out, "would be refused:", problem)
	}
	return writeProxy(ctx, s, flags.Arg(1), out)
}

// prepare returns a stage with the work tree and the changelog of the release, and the reasons to refuse the release.
func prepare(ctx context.Context, repo repository, version, branch string, now time.Time) (_ *stage, problems []error, err error) {
	s, err := newStage(ctx, repo, version)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			s.remove()
		}
	}()
	problems, err = repo.problems(ctx, s.modules, version, branch)
	if err != nil {
		return nil, nil, err
	}
	log, err := s.read(changelogFile)
	if err != nil {
		return nil, nil, err
	}
	released, err := releasedChangelog(log, version, now)
	if err != nil {
		return s, append(problems, err), nil
	}
	return s, problems, s.write(changelogFile, released)
}

// writeProxy writes the release of the stage to dir.
func writeProxy(ctx context.Context, s *stage, dir string, out io.Writer) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	if err := s.writeProxy(dir); err != nil {
		return err
	}
	for _, m := range s.modules.released {
		fmt.Fprintf(out, "%s@%s %s\n", m.path, s.version, s.sums[m.path].Sum)
	}
	return nil
}

// release makes the commits and the tags of the stage's release in repo. If it fails or is interrupted, repo is as it
// was before.
func release(ctx context.Context, repo repository, s *stage, branch string, out io.Writer) (err error) {
	if err := s.build(ctx); err != nil {
		return err
	}
	start, err := repo.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	var tags []string
	defer func() {
		if err != nil {
			err = errors.Join(err, repo.undo(context.WithoutCancel(ctx), start, tags))
		}
	}()
	if err := repo.commit(ctx, s.changed, "release: "+s.version+"\n\n"+
		"The released modules have no replace lines: go install refuses a module that has any."); err != nil {
		return err
	}
	// A setting of the repository, such as a filter for line ends, can change what is committed. The zips would then
	// have other hashes than go.sum.
	tree, err := repo.git(ctx, "rev-parse", "HEAD^{tree}")
	if err != nil {
		return err
	}
	if tree != s.tree {
		return fmt.Errorf("the commit has other contents than the release: tree %s, want %s", tree, s.tree)
	}
	for _, m := range s.modules.released {
		if _, err := repo.git(ctx, "tag", "-m", m.path+" "+s.version, m.tag(s.version)); err != nil {
			return err
		}
		tags = append(tags, m.tag(s.version))
	}
	if len(s.restored) > 0 {
		if err := repo.commit(ctx, s.restored, "release: replace lines are back after "+s.version+"\n\n"+
			"A nested module builds against the root of the same commit again, also without the workspace."); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%s is committed and tagged. Nothing is pushed yet. To look at it:\n\n", s.version)
	fmt.Fprintf(out, "  git show %s\n\nTo publish it, all at once:\n\n", s.version)
	fmt.Fprintf(out, "  git push --atomic origin %s %s\n", branch, strings.Join(tags, " "))
	return nil
}
