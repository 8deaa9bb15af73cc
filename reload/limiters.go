package reload

import (
	"context"
	"fmt"
	"reflect"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// A limiterKind decodes and builds the limiters of one kind.
type limiterKind struct {
	options reflect.Type
	decode  func(d *decoder, n *document.Node, path string, l *model.Limiter)
	build   func(b *registry.Builder, k *Kinds, name string, l *model.Limiter) (limiter.Limiter, error)
}

var ownLimiters map[string]*limiterKind

func init() { // not in the declaration, which would refer to itself: a partitioned limiter has limiters
	ownLimiters = map[string]*limiterKind{
		"token_bucket":   storableOf(bucket),
		"fixed_window":   storableOf(fixedWindow),
		"sliding_window": storableOf(slidingWindow),
		"concurrency":    storableOf(concurrency),
		"unlimited":      limiterOf(unlimited),
		"adaptive":       limiterOf(adaptiveLimiter),
		"throttler":      limiterOf(throttler),
		"partitioned":    {options: reflect.TypeFor[model.PartitionedOptions](), decode: decodePartitioned, build: buildPartitioned},
		"chain":          {decode: decodeChain, build: buildChain},
	}
}

func bucket(b *registry.Builder, name string, o limiter.TokenBucketOptions) (limiter.Limiter, error) {
	return b.TokenBucket(name, o), nil
}

func fixedWindow(b *registry.Builder, name string, o limiter.FixedWindowOptions) (limiter.Limiter, error) {
	return b.FixedWindow(name, o), nil
}

func slidingWindow(b *registry.Builder, name string, o limiter.SlidingWindowOptions) (limiter.Limiter, error) {
	return b.SlidingWindow(name, o), nil
}

func concurrency(b *registry.Builder, name string, o limiter.ConcurrencyOptions) (limiter.Limiter, error) {
	return b.Concurrency(name, o), nil
}

func unlimited(*registry.Builder, string, struct{}) (limiter.Limiter, error) {
	return limiter.NewUnlimited(), nil
}

// limiterOf returns the kind whose options are just the struct O.
func limiterOf[O any](build func(b *registry.Builder, name string, o O) (limiter.Limiter, error)) *limiterKind {
	return &limiterKind{
		options: reflect.TypeFor[O](),
		decode: func(d *decoder, n *document.Node, path string, l *model.Limiter) {
			var o O
			d.options(n, reflect.ValueOf(&o), path, nil)
			l.Options = o
		},
		build: func(b *registry.Builder, _ *Kinds, name string, l *model.Limiter) (limiter.Limiter, error) {
			return build(b, name, l.Options.(O))
		},
	}
}

// eachKey is what messages call the limiter that a partitioned one has for each key.
const eachKey = "limiter for each key"

func decodePartitioned(d *decoder, n *document.Node, path string, l *model.Limiter) {
	var o model.PartitionedOptions
	s := d.options(n, reflect.ValueOf(&o), path, extras{"each": func(each *document.Node, path string) {
		l.Each = d.eachLimiter(each, path, l.Store)
	}})
	l.Options = o
	d.noPartitions(l, s)
	if n.Kind == document.Mapping && n.Get("each") == nil {
		d.Add(n, path, "each is missing: the limiter that every key gets, one of %s", document.OneOf(model.Partitionable))
	}
}

func buildPartitioned(b *registry.Builder, k *Kinds, name string, l *model.Limiter) (limiter.Limiter, error) {
	o := l.Options.(model.PartitionedOptions)
	key, err := registered[func(context.Context) string](k, model.KeyFunction, o.Key)
	if err != nil {
		return nil, err
	}
	if l.Store != nil {
		return buildInStore(b, k, name, l, key)
	}
	keepKey(b, name, o.Key, key)
	p := &byContext{}
	switch each := l.Each.Options.(type) {
	case limiter.TokenBucketOptions:
		p.Partitioned = registry.Partitioned(b, name, key, each, &o.PartitionedOptions)
	case limiter.FixedWindowOptions:
		p.Partitioned = registry.Partitioned(b, name, key, each, &o.PartitionedOptions)
	case limiter.SlidingWindowOptions:
		p.Partitioned = registry.Partitioned(b, name, key, each, &o.PartitionedOptions)
	case limiter.ConcurrencyOptions:
		p.Partitioned = registry.Partitioned(b, name, key, each, &o.PartitionedOptions)
	}
	return p, nil
}

// A keyIdentity identifies the key function of a partitioned limiter.
type keyIdentity struct {
	Key  string  // the name in the file
	code uintptr // of the function: in other Kinds the same name can stand for another function
}

// keepKey makes a build fail if two pipelines share a limiter and name different key functions. Otherwise the key
// function of the pipeline that was built last would be used for both.
func keepKey(b *registry.Builder, name, key string, f func(context.Context) string) {
	registry.Keep(b, name, keyIdentity{key, reflect.ValueOf(f).Pointer()}, registry.Kept[struct{}, keyIdentity]{
		Kind:        "key function of the limiter",
		Make:        func(keyIdentity) (none struct{}, err error) { return none, nil },
		Reconfigure: func(struct{}, keyIdentity) error { return nil },
	})
}

// byContext makes a partitioned limiter, whose resource is the context, a [limiter.Limiter] that a chain can have.
type byContext struct {
	limiter.Partitioned[context.Context]
}

func (p *byContext) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.Partitioned.TryAcquire(ctx, ctx, n)
}

func (p *byContext) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.Partitioned.Acquire(ctx, ctx, n)
}

// inContext returns the resource of a partitioned limiter: the context.
func inContext(ctx context.Context) context.Context { return ctx }

// decodeChain decodes a list of names of shared limiters.
func decodeChain(d *decoder, n *document.Node, path string, l *model.Limiter) {
	if n.Kind != document.List || len(n.Items) == 0 {
		d.Add(n, path, "must be a list of the names of limiters, found %s", foundList(n))
		return
	}
	l.Members = make([]*model.Limiter, len(n.Items))
	first := make(map[string]bool)
	for i, item := range n.Items {
		at := document.Element(path, i)
		if item.Kind != document.Text {
			d.Add(item, at, "must be the name of a limiter, found %v", item)
			continue
		}
		if first[item.Text] {
			d.Add(item, at, "the limiter %s is in the chain already", document.Quoted(item.Text))
		}
		first[item.Text] = true
		d.limiterRefs = append(d.limiterRefs, limiterRef{reference{item, at, d.in}, func(m *model.Limiter) { l.Members[i] = m }})
	}
}

func foundList(n *document.Node) string {
	if n.Kind == document.List {
		return "an empty list"
	}
	return n.String()
}

func buildChain(b *registry.Builder, k *Kinds, _ string, l *model.Limiter) (limiter.Limiter, error) {
	members := make([]limiter.Limiter, len(l.Members))
	for i, m := range l.Members {
		var err error
		if members[i], err = buildLimiter(b, k, m.Name, m); err != nil {
			return nil, err
		}
	}
	return limiter.Chain(members...)
}

// buildLimiter returns the limiter l. If the registry keeps it, name is its name there.
func buildLimiter(b *registry.Builder, k *Kinds, name string, l *model.Limiter) (limiter.Limiter, error) {
	kind := k.limiter(l.Kind)
	if kind == nil {
		return nil, fmt.Errorf("there is no limiter kind %q", l.Kind)
	}
	made, err := kind.build(b, k, name, l)
	if err != nil {
		return nil, fmt.Errorf("limiter %q: %w", name, err)
	}
	return made, nil
}
