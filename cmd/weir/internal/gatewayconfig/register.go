package gatewayconfig

import (
	"context"
	"errors"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// RetryableHandle is the name of a handle of a retry in files. It does what a retry without a handle does.
const RetryableHandle = "retryable"

func retryable(_ any, err error) bool {
	retryable, known := pipeline.Retryable(err)
	return err != nil && (retryable || !known && !errors.Is(err, context.Canceled))
}

// A Runtime runs what the gateway's part of a file describes. If its functions are nil, a file can be checked and
// explained, but not put in force.
type Runtime struct {
	// Store returns the store of that name. It is called for each limiter that has its state there, while pipelines are
	// built. The Runtime opens a store once, and closes it after the registry: what a file says about stores cannot
	// change while the program runs.
	Store func(name string, s fileconfig.Store) (*store.Store, error)
	// Simulated reports whether nothing is served: files without the gateway's part are simulated, too.
	Simulated bool
	// Key returns what stands for the key of that name, whatever it is made of. If nil, it is the key of an HTTP request.
	Key func(name string) func(ctx context.Context) string
	// Pipelines returns the functions that build the pipelines of g, which has its defaults: [PipelineName] and, if
	// need be, others, whose names begin with it and a slash.
	Pipelines func(g Gateway) map[string]func(b *reload.SectionBuilder) error
}

var errNoStatistics = errors.New("weir gateway: the limiter has no statistics")

// Register registers the gateway's part of files with k.
func Register(k *reload.Kinds, r Runtime) {
	k.MaxFileSize(fileconfig.MaxSize)
	reload.RegisterSection(k, Field, reload.Section[Gateway]{
		Doc:       "The reverse proxy of weir gateway.",
		Required:  r.Pipelines != nil && !r.Simulated, // also of a file that replaces one: without it, there would be nothing to serve
		Complete:  true,
		Names:     r.names,
		Check:     func(f *reload.File, g Gateway) error { return g.Check(f) },
		Explain:   func(f *reload.File, g Gateway) string { return g.Explain(f) },
		Pipelines: r.pipelines,
	})
}

func (r Runtime) pipelines(g Gateway) map[string]func(b *reload.SectionBuilder) error {
	if r.Pipelines == nil {
		return map[string]func(b *reload.SectionBuilder) error{
			PipelineName: func(*reload.SectionBuilder) error { return fileconfig.ErrNoRuntime },
		}
	}
	return r.Pipelines(g.WithDefaults())
}

// names gives the stores and keys of g their names.
func (r Runtime) names(n *reload.Names, g Gateway) {
	n.Handle(RetryableHandle, nil, retryable)
	g.Common.Names(n, r.Store)
	for name := range g.Keys {
		n.Key(name, g.keySource(name), func() (func(context.Context) string, error) {
			if r.Key != nil {
				return r.Key(name), nil
			}
			key, err := g.NewKey(name)
			if err != nil {
				return nil, err
			}
			return byContext(key), nil
		})
	}
}
