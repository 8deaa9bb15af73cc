package reload

import (
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// A reference is a place where the file names something else of the file.
type reference struct {
	*document.Node
	path string
	in   string // the shared limiter or the pipeline around it
}

// A limiterRef is a place where a shared limiter is named. set is called with the limiter.
type limiterRef struct {
	reference
	set func(*model.Limiter)
}

// refer resolves all names of limiters, budgets and pipelines, and refuses cycles.
func (d *decoder) refer(f *File) {
	shared := make(map[string]*model.Limiter, len(f.has.Limiters))
	for _, l := range f.has.Limiters {
		shared[l.Name] = l
	}
	limiters := f.Limiters()
	var chains []reference
	for _, r := range d.limiterRefs {
		l := shared[r.Text]
		if l == nil {
			d.Add(r.Node, r.path, "there is no limiter %s, %s", document.Quoted(r.Text), d.Instead(r.Text, limiters, "the file has no limiters"))
			continue
		}
		r.set(l)
		if r.in != "" {
			chains = append(chains, r.reference)
		}
	}
	before := len(d.Problems)
	d.cycles("limiter", limiters, chains)
	if len(d.Problems) == before {
		d.chainLengths(limiters, chains)
	}
	if len(d.Problems) == before {
		d.checkAdapting(f)
	}
	d.referBudgets(f)

	names := f.Pipelines()
	known := make(map[string]bool, len(names))
	for _, name := range names {
		known[name] = true
	}
	var embedded []reference
	for _, r := range d.pipelineRefs {
		if !known[r.Text] {
			d.Add(r.Node, r.path, "there is no pipeline %s in the file, %s", document.Quoted(r.Text), d.Instead(r.Text, names, ""))
			continue
		}
		embedded = append(embedded, r)
	}
	d.cycles("pipeline", names, embedded)
}

// cycles adds a problem for each reference that closes a cycle.
func (d *decoder) cycles(what string, names []string, references []reference) {
	leaving := make(map[string][]reference)
	for _, r := range references {
		leaving[r.in] = append(leaving[r.in], r)
	}
	var way []string
	place := make(map[string]int) // the position in way, from 1; -1: done
	var visit func(name string)
	visit = func(name string) {
		way = append(way, name)
		place[name] = len(way)
		for _, r := range leaving[name] {
			switch at := place[r.Text]; {
			case at > 0:
				var round []string
				for _, name := range document.Listed(way[at-1:]) {
					round = append(round, document.Name(name))
				}
				round = append(round, document.Name(r.Text))
				d.Add(r.Node, r.path, "a %s cannot contain itself: %s", what, strings.Join(round, " -> "))
			case at == 0:
				visit(r.Text)
			}
		}
		way = way[:len(way)-1]
		place[name] = -1
	}
	for _, name := range names {
		if place[name] == 0 {
			visit(name)
		}
	}
}

// maxChain bounds how many limiters a chain stands for: with chains of chains the number can double with each line of
// a file.
const maxChain = 1000

// chainLengths refuses chains that are too long. No chain may contain itself.
func (d *decoder) chainLengths(names []string, references []reference) {
	members := make(map[string][]reference)
	for _, r := range references {
		members[r.in] = append(members[r.in], r)
	}
	lengths := make(map[string]int)
	var length func(name string) int
	length = func(name string) int {
		if n, known := lengths[name]; known {
			return n
		}
		if len(members[name]) == 0 {
			return 1
		}
		all := 0
		for _, r := range members[name] {
			n := length(r.Text)
			if all += n; all > maxChain && all-n <= maxChain && n <= maxChain {
				d.Add(r.Node, r.path, "the chain stands for more than %d limiters", maxChain)
			}
		}
		lengths[name] = min(all, maxChain+1)
		return lengths[name]
	}
	for _, name := range names {
		length(name)
	}
}

// ownNames refuses strategies whose limiter or circuit breaker would have the name of another one in the registry: a
// strategy "c" of a pipeline "a/b" and a strategy "b/c" of a pipeline "a" give the same name.
func (d *decoder) ownNames(f *File) {
	d.setApart(f)
	taken := make(map[string]string)
	for _, b := range f.has.Budgets {
		taken["budget "+b.Name] = "the budget " + document.Name(b.Name)
	}
	for _, l := range f.has.Limiters {
		taken[l.Name] = "the limiter " + document.Name(l.Name)
	}
	for _, p := range f.has.Pipelines {
		for i, s := range p.Strategies {
			prefix, what, keeps := s.Keeps()
			if !keeps {
				continue
			}
			name, at := s.OwnName(p.Name, ""), p.Places[i]
			if s.Limiter != nil && what == "limiter" {
				d.storedName(at.Node, at.Path, name, s.Limiter)
			}
			its := "that of the pipeline " + document.Name(p.Name)
			if other := taken[prefix+name]; other == its {
				continue // two strategies have the same name, which is reported
			} else if other != "" {
				d.Add(at.Node, at.Path, "its %s would be called %s, as %s is; give the strategy another name",
					what, document.Quoted(prefix+name), other)
				continue
			}
			taken[prefix+name] = its
		}
	}
}

// setApart sets Apart for the strategies of a pipeline if another name in the file continues the name of the pipeline
// after a slash: the part after the slash could be the name of an instance.
func (d *decoder) setApart(f *File) {
	continued := make(map[string]bool)
	add := func(name string) {
		for i, r := range name {
			if r == '/' {
				continued[name[:i]] = true
			}
		}
	}
	for _, l := range f.has.Limiters {
		add(l.Name)
	}
	for _, p := range f.has.Pipelines {
		add(p.Name)
		for _, s := range p.Strategies {
			if strings.Contains(s.Name, "/") {
				add(p.Name + "/" + s.Name)
			}
		}
	}
	for _, p := range f.has.Pipelines {
		for _, s := range p.Strategies {
			s.Apart = continued[p.Name]
		}
	}
	d.checkApart(f)
}

// checkApart refuses names with "//" that could be those of instances whose names are kept apart.
func (d *decoder) checkApart(f *File) {
	apart := make(map[string]bool)
	for _, p := range f.has.Pipelines {
		apart[p.Name] = slices.ContainsFunc(p.Strategies, func(s *model.Strategy) bool {
			_, _, keeps := s.Keeps()
			return keeps
		})
	}
	for _, l := range f.has.Limiters {
		for i := range l.Name {
			if strings.HasPrefix(l.Name[i:], "//") && apart[l.Name[:i]] {
				d.Add(f.pipelinesAt, model.LimitersField, "the limiter %s has a name that an instance of the pipeline %s could have for its own; give it one without //",
					document.Name(l.Name), document.Name(l.Name[:i]))
				break
			}
		}
	}
	for _, p := range f.has.Pipelines {
		for i := range p.Name {
			if strings.HasPrefix(p.Name[i:], "//") && apart[p.Name[:i]] {
				d.Add(f.pipelinesAt, document.Child(model.PipelinesField, p.Name), "the pipeline %s has a name that an instance of the pipeline %s could have for its own; give it one without //",
					document.Name(p.Name), document.Name(p.Name[:i]))
				break
			}
		}
	}
}
