package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	xmodule "golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// A repository is a git repository with a work tree.
type repository struct {
	dir string
	env []string // what git gets over the environment of this program
}

// git runs git and returns what it prints, without the last line's end.
func (r repository) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, r.dir, r.env, "git", args...)
}

// output runs a program and returns what it prints, without the last line's end. Its error has what the program
// writes to its standard error.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), namesRepository), env...)
	// A git that is killed leaves its lock of the index behind, and undo fails.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// namesRepository reports whether a variable of the environment tells git which repository it works on. A git hook sets
// these, and a program that it starts would change its repository instead of the one in the working directory.
func namesRepository(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}, name)
}

// lines splits the output of git.
func lines(out string) []string {
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

// files returns the paths of the work tree's files below its root: the files that git has and the files that git add would add.
func (r repository) files(ctx context.Context) ([]string, error) {
	out, err := r.git(ctx, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(out, func(c rune) bool { return c == 0 }), nil
}

// checkVersion returns an error for what is not a version that modules of these paths can have.
func checkVersion(ms modules, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%q is not a version: it must be like v0.2.0 or v0.2.0-rc.1", version)
	}
	for _, m := range ms.released {
		_, major, ok := xmodule.SplitPathVersion(m.path)
		if !ok {
			return fmt.Errorf("malformed module path %q", m.path)
		}
		if err := xmodule.CheckPathMajor(version, major); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	return nil
}

// problems returns the reasons for which the repository's state does not allow the release.
func (r repository) problems(ctx context.Context, ms modules, version, branch string) ([]error, error) {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	status, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if status != "" {
		refuse("the work tree has changes without a commit:\n%s", status)
	}
	current, err := r.git(ctx, "branch", "--show-current")
	if err != nil {
		return nil, err
	}
	if current != branch {
		refuse("the branch is %q, want %q", current, branch)
	}
	for _, m := range ms.released {
		tag, err := r.git(ctx, "tag", "--list", m.tag(version))
		if err != nil {
			return nil, err
		}
		if tag != "" {
			refuse("the tag %s exists", tag)
		}
	}
	// Tags of other branches do not count: v0.1.1 can follow v0.1.0 on its own branch when main is at v0.2.0.
	tags, err := r.git(ctx, "tag", "--merged", "HEAD")
	if err != nil {
		return nil, err
	}
	for _, tag := range lines(tags) {
		if semver.IsValid(tag) && semver.Compare(version, tag) < 0 {
			refuse("%s is lower than the released %s", version, tag)
		}
	}
	return problems, nil
}

// commit writes the files, given by their paths below the root, and commits them.
func (r repository) commit(ctx context.Context, files map[string][]byte, message string) error {
	args := []string{"add", "--"}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(r.dir, filepath.FromSlash(file)), text, 0o644); err != nil {
			return err
		}
		args = append(args, file)
	}
	if _, err := r.git(ctx, args...); err != nil {
		return err
	}
	_, err := r.git(ctx, "commit", "-q", "-m", message)
	return err
}

// undo deletes the tags and goes back to the commit start. The work tree had no changes before.
func (r repository) undo(ctx context.Context, start string, tags []string) error {
	var errs []error
	for _, tag := range tags {
		_, err := r.git(ctx, "tag", "-d", tag)
		errs = append(errs, err)
	}
	_, err := r.git(ctx, "reset", "-q", "--hard", start)
	return errors.Join(append(errs, err)...)
}
