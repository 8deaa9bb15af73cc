package decode

import (
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// checkRegistryNames refuses strategies whose limiter or circuit breaker would have the name of another one in the
// registry: a strategy "c" of a pipeline "a/b" and a strategy "b/c" of a pipeline "a" give the same name.
func (d *decoder) checkRegistryNames() {
	d.setDoubleSlash()
	d.checkInstanceNames()
	type registryName struct{ what, name string }
	taken := make(map[registryName]string)
	for _, l := range d.file.Limiters {
		taken[registryName{"limiter", l.Name}] = "the limiter " + document.Name(l.Name)
	}
	for _, p := range d.file.Pipelines {
		for i, s := range p.Strategies {
			what, name := s.Kept(), p.RegistryName(s, "")
			switch what {
			case "":
				continue
			case "limiter":
				d.checkStoredName(p.Places[i], name, s.Limiter)
			}
			owner := "that of the pipeline " + document.Name(p.Name)
			switch other := taken[registryName{what, name}]; other {
			case "":
				taken[registryName{what, name}] = owner
			case owner: // two strategies have the same name, which is reported
			default:
				d.AddAt(p.Places[i], "its %s would be called %s, like %s; give the strategy another name", what, document.Quoted(name), other)
			}
		}
	}
}

// setDoubleSlash sets DoubleSlash for each pipeline p if the file has another name that begins with "p/": the rest of
// that name could be an instance of p.
func (d *decoder) setDoubleSlash() {
	continued := make(map[string]bool) // the part of each name before each of its slashes
	add := func(name string) {
		for i, r := range name {
			if r == '/' {
				continued[name[:i]] = true
			}
		}
	}
	for _, l := range d.file.Limiters {
		add(l.Name)
	}
	for _, p := range d.file.Pipelines {
		add(p.Name)
		for _, s := range p.Strategies {
			if strings.Contains(s.Name, "/") {
				add(p.Name + "/" + s.Name)
			}
		}
	}
	for _, p := range d.file.Pipelines {
		p.DoubleSlash = continued[p.Name]
	}
}

// checkInstanceNames refuses names with "//" that the limiter or circuit breaker of an instance could also have; see
// [model.Pipeline.RegistryName].
func (d *decoder) checkInstanceNames() {
	hasKept := make(map[string]bool) // the pipelines with something that the registry keeps
	for _, p := range d.file.Pipelines {
		hasKept[p.Name] = slices.ContainsFunc(p.Strategies, func(s *model.Strategy) bool { return s.Kept() != "" })
	}
	check := func(what, name string, at document.Place) {
		for i := range name {
			if strings.HasPrefix(name[i:], "//") && hasKept[name[:i]] {
				d.AddAt(at, "the %s %s has a name that could also come from an instance of the pipeline %s; give it a name without //",
					what, document.Name(name), document.Name(name[:i]))
				return
			}
		}
	}
	for _, l := range d.file.Limiters {
		check("limiter", l.Name, d.places[l])
	}
	for _, p := range d.file.Pipelines {
		check("pipeline", p.Name, d.places[p])
	}
}
