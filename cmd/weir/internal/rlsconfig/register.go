package rlsconfig

import (
	"context"

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// A Runtime runs what the part of a file describes that is for weir rls. If its functions are nil, a file can be checked
// and explained, but not put in force.
type Runtime struct {
	// Store returns the store of that name, the same one for each call. It stays open as long as the registry.
	Store func(name string, s fileconfig.Store) (*store.Store, error)
	// Pipelines returns the functions that build the pipelines of r, which has its defaults: [PipelineName].
	Pipelines func(r RLS) map[string]func(b *reload.SectionBuilder) error
}

// Register registers the part of files that is for weir rls with k.
func Register(k *reload.Kinds, r Runtime) {
	k.MaxFileSize(fileconfig.MaxSize)
	reload.RegisterSection(k, Field, reload.Section[RLS]{
		Doc:       "The rate limit service of weir rls, which Envoy asks.",
		Required:  r.Pipelines != nil, // also of a file that replaces one: without it, there would be nothing to serve
		Complete:  true,
		Names:     r.names,
		Check:     func(f *reload.File, c RLS) error { return c.Check(f) },
		Explain:   func(f *reload.File, c RLS) string { return c.Explain(f) },
		Pipelines: r.pipelines,
	})
}

func (r Runtime) pipelines(c RLS) map[string]func(b *reload.SectionBuilder) error {
	if r.Pipelines == nil {
		return map[string]func(b *reload.SectionBuilder) error{
			PipelineName: func(*reload.SectionBuilder) error { return fileconfig.ErrNoRuntime },
		}
	}
	return r.Pipelines(c.WithDefaults())
}

// names gives the stores of c and the key their names.
func (r Runtime) names(n *reload.Names, c RLS) {
	c.Common.Names(n, r.Store)
	n.Key(KeyName, nil, func() (func(context.Context) string, error) { return keyOf, nil })
}
