package decode

import (
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
)

// byFrom returns the references of each chain or pipeline.
func byFrom(references []reference) map[string][]reference {
	all := make(map[string][]reference)
	for _, r := range references {
		all[r.from] = append(all[r.from], r)
	}
	return all
}

// refuseCycles adds a problem for each reference that closes a cycle.
func (d *decoder) refuseCycles(what string, names []string, references []reference) {
	leaving := byFrom(references)
	var path []string
	position := make(map[string]int) // in path, from 1; 0: not visited yet; -1: done
	var visit func(name string)
	visit = func(name string) {
		path = append(path, name)
		position[name] = len(path)
		for _, r := range leaving[name] {
			switch at := position[r.Text]; {
			case at > 0:
				var cycle []string
				for _, name := range document.Listed(path[at-1:]) {
					cycle = append(cycle, document.Name(name))
				}
				cycle = append(cycle, document.Name(r.Text))
				d.Add(r, "a %s cannot contain itself: %s", what, strings.Join(cycle, " -> "))
			case at == 0:
				visit(r.Text)
			}
		}
		path = path[:len(path)-1]
		position[name] = -1
	}
	for _, name := range names {
		if position[name] == 0 {
			visit(name)
		}
	}
}

// maxChain bounds how many limiters a chain stands for: with chains of chains the number can double with each line of
// a file.
const maxChain = 1000

// checkChainLengths refuses chains that stand for more limiters than maxChain. There must be no cycles.
func (d *decoder) checkChainLengths(names []string, references []reference) {
	members := byFrom(references)
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
			// Reported once, at the member that exceeds the bound, unless that member is too long itself.
			if all += n; all > maxChain && all-n <= maxChain && n <= maxChain {
				d.Add(r, "the chain stands for more than %d limiters", maxChain)
			}
		}
		lengths[name] = min(all, maxChain+1)
		return lengths[name]
	}
	for _, name := range names {
		length(name)
	}
}
