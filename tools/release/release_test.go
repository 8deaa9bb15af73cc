package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const toy = "github.com/weir-go/toy"

const (
	toyChangelog = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A toy.\n"
	toyJobs      = `module github.com/weir-go/toy/jobs

go 1.26.0

replace (
	github.com/weir-go/toy => ../
	github.com/weir-go/toy/store/redis => ../store/redis
)

require (
	github.com/weir-go/toy v0.0.0
	github.com/weir-go/toy/store/redis v0.0.0-00010101000000-000000000000
)
`
)

// newToy returns a repository of five modules, three of which are released.
func newToy(t *testing.T) repository {
	t.Helper()
	r := repository{dir: t.TempDir(), env: []string{"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1"}}
	for file, text := range map[string]string{
		"CHANGELOG.md":         toyChangelog,
		"LICENSE":              "Do what you like.\n",
		"go.mod":               "module " + toy + "\n\ngo 1.26.0\n",
		"toy.go":               "package toy\n\nconst Name = \"toy\"\n",
		"jobs/go.mod":          toyJobs,
		"jobs/jobs.go":         "package jobs\n\nimport (\n\t\"github.com/weir-go/toy\"\n\t\"github.com/weir-go/toy/store/redis\"\n)\n\nconst Name = toy.Name + redis.Name\n",
		"store/redis/go.mod":   "module " + toy + "/store/redis\n\ngo 1.26.0\n\nrequire " + toy + " v0.0.0\n\nreplace " + toy + " => ../../\n",
		"store/redis/redis.go": "package redis\n\nimport \"github.com/weir-go/toy\"\n\nconst Name = toy.Name\n",
		"examples/go.mod":      "module " + toy + "/examples\n\ngo 1.26.0\n\nrequire " + toy + "/jobs v0.0.0\n\nreplace " + toy + "/jobs => ../jobs\n",
		"tools/lint/go.mod":    "module " + toy + "/tools/lint\n\ngo 1.26.0\n",
	} {
		write(t, r.dir, file, text)
	}
	gitIn(t, r, "init", "-q", "-b", "main")
	gitIn(t, r, "config", "user.name", "Toy Maker")
	gitIn(t, r, "config", "user.email", "toys@localhost")
	gitIn(t, r, "add", "-A")
	gitIn(t, r, "commit", "-q", "-m", "a toy")
	return r
}

func gitIn(t *testing.T, r repository, args ...string) string {
	t.Helper()
	out, err := r.git(t.Context(), args...)
	require.NoError(t, err)
	return out
}

// releaseToy runs the program in r and returns what it prints.
func releaseToy(r repository, args ...string) (string, error) {
	var out strings.Builder
	err := run(context.Background(), append([]string{"-C", r.dir}, args...), time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC), &out)
	return out.String(), err
}

func TestRelease(t *testing.T) {
	r := newToy(t)
	before := gitIn(t, r, "rev-parse", "HEAD")
	out, err := releaseToy(r, "v0.1.0")
	require.NoError(t, err)
	assert.Contains(t, out, "git push --atomic origin main v0.1.0 store/redis/v0.1.0 jobs/v0.1.0\n")
	assert.Equal(t, "", gitIn(t, r, "status", "--porcelain"))
	assert.Equal(t, "Toy Maker\nToy Maker", gitIn(t, r, "log", "--format=%an", before+"..HEAD"))
	commit := gitIn(t, r, "rev-parse", "HEAD^")
	for _, tag := range []string{"v0.1.0", "store/redis/v0.1.0", "jobs/v0.1.0"} {
		assert.Equal(t, commit, gitIn(t, r, "rev-parse", tag+"^{commit}"))
	}
	assert.Len(t, lines(gitIn(t, r, "tag")), 3)

	released := func(file string) string { return gitIn(t, r, "show", "v0.1.0:"+file) }
	assert.Equal(t, "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-22\n\n### Added\n\n- A toy.", released("CHANGELOG.md"))
	want := "module github.com/weir-go/toy/jobs\n\ngo 1.26.0\n\nrequire (\n\tgithub.com/weir-go/toy v0.1.0\n\tgithub.com/weir-go/toy/store/redis v0.1.0\n)"
	assert.Equal(t, want, released("jobs/go.mod"))
	for _, sum := range []string{toy + " v0.1.0 h1:", toy + " v0.1.0/go.mod h1:", toy + "/store/redis v0.1.0 h1:"} {
		assert.Contains(t, released("jobs/go.sum"), sum)
	}
	assert.Contains(t, released("examples/go.mod"), "jobs v0.1.0")
	assert.Contains(t, released("examples/go.mod"), "=> ../jobs")

	after := strings.NewReplacer("v0.0.0-00010101000000-000000000000", "v0.1.0", "v0.0.0", "v0.1.0").Replace(toyJobs)
	assert.Equal(t, after, gitIn(t, r, "show", "HEAD:jobs/go.mod")+"\n")
	for _, dir := range []string{".", "jobs", "store/redis"} {
		_, err := output(t.Context(), filepath.Join(r.dir, dir), []string{"GOWORK=off", "GOFLAGS=", "GOPROXY=off"}, "go", "mod", "tidy", "-diff")
		assert.NoError(t, err)
	}

	// The next release starts from these files.
	write(t, r.dir, "CHANGELOG.md", strings.Replace(toyChangelog, "A toy", "Another toy", 1))
	gitIn(t, r, "commit", "-q", "-a", "-m", "another toy")
	_, err = releaseToy(r, "v0.1.1")
	require.NoError(t, err)
	assert.Equal(t, want, released("jobs/go.mod"))
	assert.Equal(t, strings.ReplaceAll(want, "v0.1.0", "v0.1.1"), gitIn(t, r, "show", "v0.1.1:jobs/go.mod"))
}

// The go.sum of a nested module needs the hash of the zip that the go command makes of the tag.
func TestRelease_HashesAreThoseOfTheTags(t *testing.T) {
	r := newToy(t)
	_, err := releaseToy(r, "v0.1.0")
	require.NoError(t, err)
	env := []string{
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOPROXY=direct", "GOSUMDB=off", "GOMODCACHE=" + t.TempDir(), "GIT_ALLOW_PROTOCOL=file",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + r.dir + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + toy,
	}
	checkout := t.TempDir()
	gitIn(t, r, "worktree", "add", "-q", checkout, "v0.1.0")
	_, err = output(t.Context(), filepath.Join(checkout, "jobs"), env, "go", "build", "-mod=readonly", "./...")
	require.NoError(t, err)
}

func TestRelease_Refused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, r repository)
		args   []string // v0.2.0 if nil
		want   string   // in the error
	}{
		"a change without a commit": {
			change: func(t *testing.T, r repository) { write(t, r.dir, "toy.go", "package toy\n") },
			want:   "changes without a commit:\n M toy.go",
		},
		"a file without a commit": {
			change: func(t *testing.T, r repository) { write(t, r.dir, "new.go", "package toy\n") },
			want:   "?? new.go",
		},
		"the root's tag exists": {
			change: func(t *testing.T, r repository) { gitIn(t, r, "tag", "v0.2.0") },
			want:   "the tag v0.2.0 exists",
		},
		"a nested module's tag exists": {
			change: func(t *testing.T, r repository) { gitIn(t, r, "tag", "jobs/v0.2.0") },
			want:   "the tag jobs/v0.2.0 exists",
		},
		"a higher version exists": {
			change: func(t *testing.T, r repository) { gitIn(t, r, "tag", "v0.10.0") },
			want:   "v0.2.0 is lower than the released v0.10.0",
		},
		"another branch": {
			change: func(t *testing.T, r repository) { gitIn(t, r, "switch", "-q", "-c", "feature") },
			want:   `the branch is "feature", want "main"`,
		},
		"nothing unreleased": {
			change: func(t *testing.T, r repository) {
				write(t, r.dir, "CHANGELOG.md", "## [Unreleased]\n\n### Added\n\n## [0.1.0] - 2026-01-01\n\n- A toy.\n")
				gitIn(t, r, "commit", "-q", "-a", "-m", "an empty section")
			},
			want: errNothingUnreleased.Error(),
		},
		"two reasons": {
			change: func(t *testing.T, r repository) {
				gitIn(t, r, "tag", "v0.2.0")
				gitIn(t, r, "switch", "-q", "-c", "feature")
			},
			want: "the branch is \"feature\", want \"main\"\nthe tag v0.2.0 exists",
		},
		"no v":               {args: []string{"0.2.0"}, want: "is not a version"},
		"two numbers":        {args: []string{"v0.2"}, want: "is not a version"},
		"build metadata":     {args: []string{"v0.2.0+1"}, want: "is not a version"},
		"not in the path":    {args: []string{"v2.0.0"}, want: "should be v0 or v1, not v2"},
		"no version":         {args: []string{}, want: errUsage.Error()},
		"two versions":       {args: []string{"v0.2.0", "v0.3.0"}, want: errUsage.Error()},
		"no directory":       {args: []string{"-n", "v0.2.0"}, want: errUsage.Error()},
		"an unknown flag":    {args: []string{"-x", "v0.2.0"}, want: errUsage.Error()},
		"a directory in use": {args: []string{"-n", "v0.2.0", "."}, want: ". is not empty"},
		"a replaced dependency": {
			change: func(t *testing.T, r repository) {
				write(t, r.dir, "go.mod", "module "+toy+"\n\ngo 1.26.0\n\nreplace example.com/a => example.com/b v1.0.0\n")
				gitIn(t, r, "commit", "-q", "-a", "-m", "a replaced dependency")
			},
			want: "replaces example.com/a",
		},
		"a module that is not released": {
			change: func(t *testing.T, r repository) {
				write(t, r.dir, "go.mod", "module "+toy+"\n\ngo 1.26.0\n\nrequire "+toy+"/examples v0.0.0\n")
				gitIn(t, r, "commit", "-q", "-a", "-m", "the examples")
			},
			want: "requires " + toy + "/examples, which is not",
		},
		"a circle": {
			change: func(t *testing.T, r repository) {
				write(t, r.dir, "go.mod", "module "+toy+"\n\ngo 1.26.0\n\nrequire "+toy+"/jobs v0.0.0\n")
				gitIn(t, r, "commit", "-q", "-a", "-m", "a circle")
			},
			want: "require each other in a circle",
		},
		"a wrong path": {
			change: func(t *testing.T, r repository) {
				write(t, r.dir, "jobs/go.mod", "module "+toy+"/work\n\ngo 1.26.0\n")
				gitIn(t, r, "commit", "-q", "-a", "-m", "a wrong path")
			},
			want: `jobs/go.mod: the module's path is "github.com/weir-go/toy/work", want "github.com/weir-go/toy/jobs"`,
		},
		"a hook that fails": {
			change: func(t *testing.T, r repository) {
				hook := filepath.Join(r.dir, ".git", "hooks", "pre-commit")
				write(t, r.dir, ".git/hooks/pre-commit", "#!/bin/sh\necho no commits today >&2\nexit 1\n")
				require.NoError(t, os.Chmod(hook, 0o755))
			},
			want: "no commits today",
		},
		"the second commit fails": {
			change: func(t *testing.T, r repository) {
				hook := filepath.Join(r.dir, ".git", "hooks", "pre-commit")
				write(t, r.dir, ".git/hooks/pre-commit", "#!/bin/sh\nif [ -n \"$(git tag)\" ]; then echo no second commit >&2; exit 1; fi\n")
				require.NoError(t, os.Chmod(hook, 0o755))
			},
			want: "no second commit",
		},
		"a commit with other contents": {
			change: func(t *testing.T, r repository) {
				gitIn(t, r, "config", "filter.date.clean", "sed s/2026/2027/")
				write(t, r.dir, ".git/info/attributes", "CHANGELOG.md filter=date\n")
			},
			want: "the commit has other contents than the release",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newToy(t)
			if tc.change != nil {
				tc.change(t, r)
			}
			state := func() string {
				return gitIn(t, r, "rev-parse", "HEAD") + gitIn(t, r, "tag") + gitIn(t, r, "status", "--porcelain") + gitIn(t, r, "diff")
			}
			before := state()
			args := tc.args
			if args == nil {
				args = []string{"v0.2.0"}
			}
			out, err := releaseToy(r, args...)
			assert.ErrorContains(t, err, tc.want)
			assert.NotContains(t, out, "git push")
			assert.Equal(t, before, state())
		})
	}
}

func TestRelease_OtherBranch(t *testing.T) {
	r := newToy(t)
	gitIn(t, r, "branch", "release-0.1")
	gitIn(t, r, "commit", "-q", "--allow-empty", "-m", "more toys")
	gitIn(t, r, "tag", "v0.2.0")
	gitIn(t, r, "switch", "-q", "release-0.1")
	out, err := releaseToy(r, "-branch", "release-0.1", "v0.1.1") // v0.2.0 is not on this branch
	require.NoError(t, err)
	assert.Contains(t, out, "origin release-0.1 v0.1.1")
}

func TestWriteProxy(t *testing.T) {
	r := newToy(t)
	write(t, r.dir, "new.go", "package toy\n\nconst New = true\n") // without a commit
	require.NoError(t, os.Remove(filepath.Join(r.dir, "toy.go")))
	write(t, r.dir, "toy.go", "package toy\n\nconst Name = \"changed\"\n")
	write(t, r.dir, "CHANGELOG.md", "## [Unreleased]\n")
	state := func() string { return gitIn(t, r, "rev-parse", "HEAD") + gitIn(t, r, "status", "--porcelain") }
	before := state()
	dir := filepath.Join(t.TempDir(), "proxy")
	out, err := releaseToy(r, "-n", "v0.1.0", dir)
	require.NoError(t, err)
	assert.Equal(t, before, state())
	for _, problem := range []string{"changes without a commit", errNothingUnreleased.Error()} {
		assert.Contains(t, out, problem)
	}
	var files []string
	for _, m := range []string{"", "/jobs", "/store/redis"} {
		for _, name := range []string{"list", "v0.1.0.info", "v0.1.0.mod", "v0.1.0.zip"} {
			files = append(files, filepath.Join(dir, toy+m, "@v", name))
		}
	}
	assert.ElementsMatch(t, files, filesBelow(t, dir))

	program := t.TempDir()
	write(t, program, "go.mod", "module program\n\ngo 1.26.0\n")
	write(t, program, "main.go", "package main\n\nimport (\n\t\"github.com/weir-go/toy\"\n\t\"github.com/weir-go/toy/jobs\"\n)\n\nfunc main() { println(jobs.Name, toy.New) }\n")
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOPROXY=file://" + dir, "GOSUMDB=off", "GONOPROXY=none", "GOMODCACHE=" + t.TempDir()}
	for _, args := range [][]string{{"get", toy + "/jobs"}, {"vet", "."}} {
		_, err = output(t.Context(), program, env, "go", args...)
		assert.NoError(t, err)
	}
}

func filesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	require.NoError(t, err)
	return files
}

func TestReleasedChangelog(t *testing.T) {
	day := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	const older = "\n## [0.1.0] - 2026-01-01\n\n- A toy.\n"
	for name, tc := range map[string]struct{ text, want, problem string }{
		"moved":             {text: "## [Unreleased]\n\n- New.\n" + older, want: "## [Unreleased]\n\n## [0.2.0] - 2026-11-22\n\n- New.\n" + older},
		"headings only":     {text: "## [Unreleased]\n\n### Added\n" + older, problem: errNothingUnreleased.Error()},
		"nothing":           {text: "## [Unreleased]\n", problem: errNothingUnreleased.Error()},
		"no section":        {text: older, problem: "has no section"},
		"two sections":      {text: "## [Unreleased]\n\n- New.\n\n## [Unreleased]\n", problem: "has two sections"},
		"released already":  {text: "## [Unreleased]\n\n- New.\n\n## [0.2.0] - 2026-11-21\n\n- Old.\n", problem: "has a section of 0.2.0 already"},
		"longer number":     {text: "## [Unreleased]\n\n- New.\n\n## [0.2.0-rc.1]\n", want: "## [Unreleased]\n\n## [0.2.0] - 2026-11-22\n\n- New.\n\n## [0.2.0-rc.1]\n"},
		"entry of an older": {text: "## [Unreleased]\n\n## Notes\n\n- Old.\n", problem: errNothingUnreleased.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := releasedChangelog(tc.text, "v0.2.0", day)
			if tc.problem != "" {
				assert.ErrorContains(t, err, tc.problem)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}
