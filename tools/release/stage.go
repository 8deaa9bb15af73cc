package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	xmodule "golang.org/x/mod/module"
)

// A stage is a temporary git repository with a copy of the work tree. The release is made there first: commits and tags
// are real, so the go command can download the modules, and a failure costs nothing.
type stage struct {
	repo    repository
	temp    string // has the repository and the module caches
	version string
	modules modules
	goEnv   []string

	before map[string]string // texts of files before the first change

	// What build makes.
	changed  map[string][]byte   // files of the release commit that differ from the work tree
	restored map[string][]byte   // files of the commit after it that differ from the release commit
	sums     map[string]download // by module path
	tree     string              // git's hash of the release commit's contents
}

// A download is what `go mod download -json` prints about one module.
type download struct {
	Path, Version    string
	Info, GoMod, Zip string // files
	Sum, GoModSum    string
}

// newStage copies the work tree of repo.
func newStage(ctx context.Context, repo repository, version string) (_ *stage, err error) {
	s := &stage{version: version, before: map[string]string{}, changed: map[string][]byte{}, restored: map[string][]byte{}}
	files, err := repo.files(ctx)
	if err != nil {
		return nil, err
	}
	s.temp, err = os.MkdirTemp("", "weir-release-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.remove()
		}
	}()
	s.repo = repository{dir: filepath.Join(s.temp, "repository"), env: []string{
		// The user's settings and hooks are for commits of the user.
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=release", "GIT_AUTHOR_EMAIL=release@localhost",
		"GIT_COMMITTER_NAME=release", "GIT_COMMITTER_EMAIL=release@localhost",
	}}
	if err := copyFiles(repo.dir, s.repo.dir, files); err != nil {
		return nil, err
	}
	if _, err := s.repo.git(ctx, "init", "-q", "--template="); err != nil {
		return nil, err
	}
	s.modules, err = findModules(files, s.read)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(s.modules, version); err != nil {
		return nil, err
	}
	return s, s.setGoEnv(ctx)
}

func (s *stage) remove() { _ = os.RemoveAll(s.temp) }

// setGoEnv makes the go command find the repository's modules in the stage. Other modules come from the module cache of
// the user, else from where the user has them from. Its own module cache is temporary: the user's must not keep what
// may never be released, because a later release of the same version has other contents.
func (s *stage) setGoEnv(ctx context.Context) error {
	out, err := output(ctx, s.repo.dir, []string{"GOWORK=off"}, goCommand(), "env", "-json", "GOMODCACHE", "GOPROXY", "GONOSUMDB")
	if err != nil {
		return err
	}
	var user struct{ GOMODCACHE, GOPROXY, GONOSUMDB string }
	if err := json.Unmarshal([]byte(out), &user); err != nil {
		return err
	}
	root := s.modules.root
	s.goEnv = slices.Concat(s.repo.env, []string{
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOPRIVATE=", "GONOPROXY=none", "GONOSUMDB=" + root + "," + user.GONOSUMDB,
		"GOPROXY=" + fileProxy(user.GOMODCACHE) + "," + user.GOPROXY,
		// The repository's address leads to the stage. GIT_ALLOW_PROTOCOL makes git fail where it does not, instead of
		// asking the server for a version that does not exist yet.
		"GIT_ALLOW_PROTOCOL=file", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://" + filepath.ToSlash(s.repo.dir) + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + root,
	})
	return nil
}

// fileProxy returns the address of a module cache as a module proxy.
func fileProxy(cache string) string { return "file://" + filepath.ToSlash(cache) + "/cache/download" }

func goCommand() string {
	if name := os.Getenv("GO"); name != "" {
		return name
	}
	return "go"
}

// runGo runs the go command with a module cache.
func (s *stage) runGo(ctx context.Context, dir, cache string, env []string, args ...string) (string, error) {
	return output(ctx, dir, slices.Concat(s.goEnv, []string{"GOMODCACHE=" + cache}, env), goCommand(), args...)
}

// read returns the text of a file, given by its path below the root.
func (s *stage) read(file string) (string, error) {
	text, err := os.ReadFile(s.path(file))
	return string(text), err
}

// write writes a file, given by its path below the root.
func (s *stage) write(file, text string) error {
	if err := s.keep(file); err != nil {
		return err
	}
	return os.WriteFile(s.path(file), []byte(text), 0o644)
}

// keep notes the text of a file that is about to change. A file that does not exist has an empty text.
func (s *stage) keep(file string) error {
	if _, ok := s.before[file]; ok {
		return nil
	}
	text, err := s.read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.before[file] = text
	return nil
}

func (s *stage) path(file string) string { return filepath.Join(s.repo.dir, filepath.FromSlash(file)) }

// build makes the release commit, with the tags of all modules, from what is in the stage.
func (s *stage) build(ctx context.Context) error {
	for _, m := range s.modules.all() {
		edit := m.withVersion
		if m.isReleased() {
			edit = m.asReleased
		}
		text, err := edit(s.modules, s.version)
		if err != nil {
			return err
		}
		if err := s.write(m.file("go.mod"), string(text)); err != nil {
			return err
		}
	}
	// A go.sum has the hashes of the modules that its module requires, so these are made first. Each commit replaces
	// the one before. What changes is in nested modules that come later, which a zip does not contain.
	sums := map[string]download{}
	for _, m := range s.modules.released {
		if err := s.tidy(ctx, m, filepath.Join(s.temp, "steps")); err != nil {
			return err
		}
		if err := s.commit(ctx); err != nil {
			return err
		}
		if _, err := s.repo.git(ctx, "tag", m.tag(s.version)); err != nil {
			return err
		}
		made, err := s.download(ctx, filepath.Join(s.temp, "steps"), m)
		if err != nil {
			return err
		}
		sums[m.path] = made[m.path]
	}
	for _, m := range s.modules.released {
		if _, err := s.repo.git(ctx, "tag", "-f", m.tag(s.version)); err != nil {
			return err
		}
	}
	var err error
	s.sums, err = s.download(ctx, filepath.Join(s.temp, "release"), s.modules.released...)
	if err != nil {
		return err
	}
	for path, step := range sums {
		if made := s.sums[path]; made.Sum != step.Sum || made.GoModSum != step.GoModSum {
			return fmt.Errorf("%s has the hash %s in the release commit, and %s in go.sum", path, made.Sum, step.Sum)
		}
	}
	s.tree, err = s.repo.git(ctx, "rev-parse", "HEAD^{tree}")
	if err != nil {
		return err
	}
	return s.compare()
}

// tidy completes the go.sum of a released module. What it requires is in the module cache.
func (s *stage) tidy(ctx context.Context, m module, cache string) error {
	required, err := m.requires(s.modules)
	if err != nil || len(required) == 0 {
		return err
	}
	if err := s.keep(m.file("go.sum")); err != nil {
		return err
	}
	_, err = s.runGo(ctx, filepath.Join(s.repo.dir, filepath.FromSlash(m.dir)), cache, nil, "mod", "tidy")
	return err
}

// compare sets changed and restored.
func (s *stage) compare() error {
	for file, before := range s.before {
		text, err := s.read(file)
		if err != nil {
			return err
		}
		if text != before {
			s.changed[file] = []byte(text)
		}
	}
	for _, m := range s.modules.released {
		text, err := m.withVersion(s.modules, s.version)
		if err != nil {
			return err
		}
		if released, ok := s.changed[m.file("go.mod")]; ok && !bytes.Equal(text, released) {
			s.restored[m.file("go.mod")] = text
			s.restored[m.file("go.sum")] = []byte(s.before[m.file("go.sum")])
		}
	}
	return nil
}

// commit makes the stage's one commit, or makes it again.
func (s *stage) commit(ctx context.Context) error {
	if _, err := s.repo.git(ctx, "add", "-A", "-f"); err != nil {
		return err
	}
	args := []string{"commit", "-q", "-m", s.version}
	if _, err := s.repo.git(ctx, "rev-parse", "-q", "--verify", "HEAD"); err == nil {
		args = append(args, "--amend", "--allow-empty")
	}
	_, err := s.repo.git(ctx, args...)
	return err
}

// download has the go command make the zips of the modules from the stage's tags.
func (s *stage) download(ctx context.Context, cache string, ms ...module) (map[string]download, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range ms {
		args = append(args, m.path+"@"+s.version)
	}
	// Outside of the work tree no go.mod applies.
	out, err := s.runGo(ctx, s.temp, cache, []string{"GOPROXY=direct"}, args...)
	if err != nil {
		return nil, err
	}
	made := map[string]download{}
	for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
		var d download
		if err := decoder.Decode(&d); err != nil {
			return nil, err
		}
		made[d.Path] = d
	}
	for _, m := range ms {
		if made[m.path].Sum == "" {
			return nil, fmt.Errorf("go mod download made no zip of %s", m.path)
		}
	}
	return made, nil
}

// writeProxy writes what build made as the files of a module proxy.
func (s *stage) writeProxy(dir string) error {
	for _, d := range s.sums {
		escaped, err := xmodule.EscapePath(d.Path)
		if err != nil {
			return err
		}
		folder := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		// The go command's own file also names the commit, which is in the stage only.
		text, err := os.ReadFile(d.Info)
		if err != nil {
			return err
		}
		var info struct{ Version, Time string }
		if err := json.Unmarshal(text, &info); err != nil {
			return err
		}
		if text, err = json.Marshal(info); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, s.version+".info"), text, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "list"), []byte(s.version+"\n"), 0o644); err != nil {
			return err
		}
		if err := copyFile(d.GoMod, filepath.Join(folder, s.version+".mod")); err != nil {
			return err
		}
		if err := copyFile(d.Zip, filepath.Join(folder, s.version+".zip")); err != nil {
			return err
		}
	}
	return nil
}

// copyFiles copies the files, given by their paths below from. A file that git has and the work tree does not is left out.
func copyFiles(from, to string, files []string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		source, target := filepath.Join(from, filepath.FromSlash(file)), filepath.Join(to, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := copyFile(source, target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyFile copies a file with its permissions, or a symbolic link.
func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}
