// Command size prints how much there is of weir, and how its files hang together: see `make size`.
//
// A line counts if it has code: comments and blank lines are left out, and so are generated files. A name counts if it is an
// exported function, type, method, constant or variable of a package with a file in api/. A room is a package.
//
// An arrow leads from one file of a room to another if the first uses a name that the second declares: a type, function,
// method, field, variable or constant. One arrow stands for all such names. A room reads well from top to bottom if its files
// can be laid in an order in which arrows lead down. Size looks for the order with the fewest arrows that do not, which run
// back up: of two files that use each other, one always does.
//
// With -room FOLDER it prints the files of one room in that order, each with its arrows.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-go/weir/tools/repo"
)

// A part of the repository is printed with its sum.
type part struct {
	name   string
	groups []string // each is a folder with all below it, without the groups below it
}

const kits = "for tests"

var parts = []part{
	{"core", []string{"limiter", "rate", "pipeline", "strategies", "registry", "reload", "store"}},
	{"around", []string{"transport", "jobs", "dashboard", "telemetry", "simulate", "cmd", "internal", "weirtest", "."}},
	{kits, []string{"limiter/limitertest", "limiter/internal/model", "store/storetest", "store/internal/drill", "examples", "bench", "tools"}},
}

// groupOf returns the group that a folder is in, and its part.
func groupOf(folder string) (part, group string) {
	for _, p := range parts {
		for _, name := range p.groups {
			if (folder == name || strings.HasPrefix(folder, name+"/")) && len(name) >= len(group) {
				part, group = p.name, name
			}
		}
	}
	return part, group
}

// What a reader can hold: more is printed.
const (
	maxArrows  = 5  // of a file
	maxFields  = 15 // of a type
	maxMethods = 20
)

func main() {
	log.SetFlags(0)
	only := flag.String("room", "", "print the arrows of this folder")
	flag.Parse()
	root, err := repo.Root()
	if err != nil {
		log.Fatal(err)
	}
	rooms, err := measure(root)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rooms {
		if r.folder == *only {
			r.printArrows()
		}
	}
	if *only == "" {
		counts, err := count(root)
		if err != nil {
			log.Fatal(err)
		}
		printCounts(counts)
		printRooms(rooms)
	}
}

// Counts are the sums of a group.
type counts struct{ code, tests, names int }

func (c *counts) add(d counts) {
	c.code, c.tests, c.names = c.code+d.code, c.tests+d.tests, c.names+d.names
}

// count returns the sums of each group.
func count(root string) (map[string]counts, error) {
	sums := make(map[string]counts)
	add := func(folder string, c counts) error {
		_, group := groupOf(folder)
		if group == "" {
			return fmt.Errorf("%s belongs to no group of tools/size", folder)
		}
		c.add(sums[group])
		sums[group] = c
		return nil
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		n, err := codeLines(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		c := counts{code: n}
		if strings.HasSuffix(path, "_test.go") {
			c = counts{tests: n}
		}
		return add(filepath.ToSlash(folder), c)
	})
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "api", "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		folder := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".txt"), "_", "/")
		if folder == "weir" {
			folder = "."
		}
		if err := add(folder, counts{names: exportedNames(string(text))}); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// exportedNames counts the names in a file of api/. A line of a type with a comma is about a field of it or a method of an interface.
func exportedNames(api string) (n int) {
	for line := range strings.Lines(api) {
		switch kind, rest, _ := strings.Cut(line, " "); kind {
		case "const", "var", "func", "method":
			n++
		case "type":
			if !fieldOf.MatchString(rest) {
				n++
			}
		}
	}
	return n
}

var fieldOf = regexp.MustCompile(`^\w+(\[.*\])? (struct|interface), `)

// A room is a package: its files, the topmost first, and its types.
type room struct {
	folder string
	files  []string
	arrows map[string]map[string][]string // from, to: the names
	types  []sized
}

// A sized is a type with what a reader has to hold of it.
type sized struct {
	name            string
	fields, methods int
}

// measure returns the rooms of the product and those for tests.
func measure(root string) ([]*room, error) {
	packages, err := repo.List(root, "-deps", "-export", "work")
	if err != nil {
		return nil, err
	}
	fset, load := token.NewFileSet(), repo.Importer(packages)
	var rooms []*room
	for _, p := range packages {
		if !p.Ours() {
			continue
		}
		r := &room{folder: p.Folder(), arrows: make(map[string]map[string][]string)}
		if err := r.read(fset, load, p); err != nil {
			return nil, fmt.Errorf("%s: %w", r.folder, err)
		}
		rooms = append(rooms, r)
	}
	slices.SortFunc(rooms, func(a, b *room) int { return cmp.Compare(a.folder, b.folder) })
	return rooms, nil
}

func (r *room) read(fset *token.FileSet, load types.Importer, p repo.Package) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
		r.files = append(r.files, name)
		r.arrows[name] = make(map[string][]string)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	checked, err := (&types.Config{Importer: load}).Check(p.ImportPath, fset, files, info)
	if err != nil {
		return err
	}
	fileOf := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	for id, o := range info.Uses {
		from, to := fileOf(id.Pos()), fileOf(o.Pos())
		if o.Pkg() == checked && from != to && !slices.Contains(r.arrows[from][to], id.Name) {
			r.arrows[from][to] = append(r.arrows[from][to], id.Name)
		}
	}
	for _, name := range checked.Scope().Names() {
		if t, ok := checked.Scope().Lookup(name).(*types.TypeName); ok && !t.IsAlias() {
			of := sized{name: r.folder + "." + name, methods: t.Type().(*types.Named).NumMethods()}
			if s, ok := t.Type().Underlying().(*types.Struct); ok {
				of.fields = s.NumFields()
			}
			r.types = append(r.types, of)
		}
	}
	r.sort()
	return nil
}

// sort orders the files: it moves one after the other to its best place until no move is of use.
func (r *room) sort() {
	slices.SortFunc(r.files, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(r.arrows[b]), len(r.arrows[a])), cmp.Compare(a, b))
	})
	for best := r.back() + 1; r.back() < best; {
		best = r.back()
		for _, name := range slices.Clone(r.files) {
			order, fewest := r.files, r.back()
			rest := slices.DeleteFunc(slices.Clone(r.files), func(f string) bool { return f == name })
			for at := range len(rest) + 1 {
				r.files = slices.Insert(slices.Clone(rest), at, name)
				if n := r.back(); n < fewest {
					order, fewest = r.files, n
				}
			}
			r.files = order
		}
	}
}

// back returns how many arrows run back up.
func (r *room) back() (n int) {
	for i, above := range r.files {
		for _, below := range r.files[i+1:] {
			if r.arrows[below][above] != nil {
				n++
			}
		}
	}
	return n
}

// all returns how many arrows there are.
func (r *room) all() (n int) {
	for _, to := range r.arrows {
		n += len(to)
	}
	return n
}

func (r *room) printArrows() {
	for i, name := range r.files {
		fmt.Println(name)
		for _, to := range slices.Sorted(maps.Keys(r.arrows[name])) {
			direction := "down to"
			if slices.Contains(r.files[:i], to) {
				direction = "BACK UP TO"
			}
			fmt.Printf("  %s %s: %s\n", direction, to, strings.Join(slices.Sorted(slices.Values(r.arrows[name][to])), " "))
		}
	}
}

func printCounts(of map[string]counts) {
	row := func(name string, c counts) { fmt.Printf("%-32s %7d %7d %7d\n", name, c.code, c.tests, c.names) }
	fmt.Printf("%-32s %7s %7s %7s\n", "lines of code", "code", "tests", "names")
	var all counts
	for _, p := range parts {
		var sum counts
		for _, name := range p.groups {
			row(name, of[name])
			sum.add(of[name])
		}
		row("= "+p.name, sum)
		all.add(sum)
	}
	row("= all", all)
}

func printRooms(rooms []*room) {
	var large []sized
	for _, r := range rooms {
		large = append(large, r.types...)
	}
	fmt.Printf("\n%-32s %7s %7s %7s %9s\n", "rooms of several files", "files", "arrows", "a file", "back up")
	for _, r := range rooms {
		if all := r.all(); all > 0 {
			fmt.Printf("%-32s %7d %7d %7.1f %7.0f %%\n", r.folder, len(r.files), all, float64(all)/float64(len(r.files)), float64(100*r.back())/float64(all))
		}
	}
	fmt.Printf("\n%-32s %7s\n", fmt.Sprintf("files with more than %d arrows", maxArrows), "arrows")
	for _, r := range rooms {
		for _, name := range r.files {
			if n := len(r.arrows[name]); n > maxArrows {
				fmt.Printf("%-32s %7d\n", r.folder+"/"+name, n)
			}
		}
	}
	slices.SortFunc(large, func(a, b sized) int { return cmp.Compare(b.fields+b.methods, a.fields+a.methods) })
	fmt.Printf("\n%-32s %7s %7s\n", "largest types", "fields", "methods")
	for _, t := range large {
		if t.fields > maxFields || t.methods > maxMethods {
			fmt.Printf("%-32s %7d %7d\n", t.name, t.fields, t.methods)
		}
	}
}

// codeLines returns how many lines of a file have a token, 0 for a generated one.
func codeLines(name string) (int, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	fset := token.NewFileSet()
	if f, err := parser.ParseFile(fset, name, src, parser.PackageClauseOnly|parser.ParseComments); err != nil || ast.IsGenerated(f) {
		return 0, err
	}
	file := fset.AddFile(name, -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := make(map[int]bool)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return len(lines), nil
		}
		for i, line := range strings.Split(text, "\n") {
			if i == 0 && text != "\n" || strings.TrimSpace(line) != "" { // of a text in backquotes; the semicolon at a line's end is a "\n"
				lines[file.Line(pos)+i] = true
			}
		}
	}
}
