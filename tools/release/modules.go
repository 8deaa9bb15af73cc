package main

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// neverReleased are the directories whose modules get no version. Any other module of the repository is released.
var neverReleased = []string{"bench", "examples", "tools"}

// A module is one go.mod of the repository.
type module struct {
	path string
	dir  string // below the repository's root, with slashes; "." is the root
	text []byte // of go.mod
}

// tag returns the name of the git tag that the go command looks for.
func (m module) tag(version string) string { return path.Join(m.dir, version) }

// file returns the path of a file of the module below the repository's root.
func (m module) file(name string) string { return path.Join(m.dir, name) }

func (m module) isReleased() bool {
	top, _, _ := strings.Cut(m.dir, "/")
	return !slices.Contains(neverReleased, top)
}

// modules are those of the repository.
type modules struct {
	root     string   // the path of the root module
	released []module // each after the modules that it requires
	others   []module
}

// contains reports whether path is that of one of the modules.
func (ms modules) contains(path string) bool {
	return slices.ContainsFunc(ms.all(), func(m module) bool { return m.path == path })
}

func (ms modules) all() []module { return slices.Concat(ms.released, ms.others) }

// findModules returns the modules of the go.mod files among files, which read returns the text of.
func findModules(files []string, read func(file string) (string, error)) (modules, error) {
	var ms modules
	for _, file := range files {
		if path.Base(file) != "go.mod" || slices.Contains(strings.Split(file, "/"), "testdata") {
			continue
		}
		text, err := read(file)
		if err != nil {
			return modules{}, err
		}
		m := module{path: modfile.ModulePath([]byte(text)), dir: path.Dir(file), text: []byte(text)}
		if m.isReleased() {
			ms.released = append(ms.released, m)
		} else {
			ms.others = append(ms.others, m)
		}
	}
	i := slices.IndexFunc(ms.released, func(m module) bool { return m.dir == "." })
	if i < 0 {
		return modules{}, fmt.Errorf("the repository's root has no go.mod")
	}
	ms.root = ms.released[i].path
	for _, m := range ms.all() {
		if want := path.Join(ms.root, m.dir); m.path != want {
			return modules{}, fmt.Errorf("%s: the module's path is %q, want %q", m.file("go.mod"), m.path, want)
		}
	}
	ordered, err := ordered(ms)
	ms.released = ordered
	return ms, err
}

// ordered returns the released modules, each after the modules that it requires.
func ordered(ms modules) ([]module, error) {
	var done []module
	waiting := slices.Clone(ms.released)
	slices.SortFunc(waiting, func(a, b module) int { return strings.Compare(a.path, b.path) })
	for len(waiting) > 0 {
		i := -1
		for j, m := range waiting {
			required, err := m.requires(ms)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(waiting, func(w module) bool { return slices.Contains(required, w.path) }) {
				i = j
				break
			}
		}
		if i < 0 {
			return nil, fmt.Errorf("the modules require each other in a circle: %s is in it or requires one that is", waiting[0].path)
		}
		done = append(done, waiting[i])
		waiting = slices.Delete(waiting, i, i+1)
	}
	return done, nil
}

// requires returns the paths of the repository's modules that a released module requires.
func (m module) requires(ms modules) ([]string, error) {
	file, err := modfile.Parse(m.file("go.mod"), m.text, nil)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, r := range file.Require {
		if slices.ContainsFunc(ms.others, func(o module) bool { return o.path == r.Mod.Path }) {
			return nil, fmt.Errorf("%s is released, and requires %s, which is not", m.path, r.Mod.Path)
		}
		if ms.contains(r.Mod.Path) {
			paths = append(paths, r.Mod.Path)
		}
	}
	return paths, nil
}

// withVersion returns go.mod with the version in every requirement of one of ms.
func (m module) withVersion(ms modules, version string) ([]byte, error) {
	file, err := modfile.Parse(m.file("go.mod"), m.text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range file.Require {
		if ms.contains(r.Mod.Path) {
			if err := file.AddRequire(r.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	return file.Format()
}

// asReleased returns go.mod with the version in every requirement of one of ms, and without the replace lines for them.
// It fails where go install would refuse what is left.
func (m module) asReleased(ms modules, version string) ([]byte, error) {
	text, err := m.withVersion(ms, version)
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(m.file("go.mod"), text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Clone(file.Replace) {
		if !ms.contains(r.Old.Path) {
			return nil, fmt.Errorf("%s replaces %s: a program that requires the module gets the original", m.path, r.Old.Path)
		}
		if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return nil, err
		}
	}
	if len(file.Exclude) > 0 {
		return nil, fmt.Errorf("%s has exclude lines: go install refuses a module that has any", m.path)
	}
	file.Cleanup()
	return file.Format()
}
