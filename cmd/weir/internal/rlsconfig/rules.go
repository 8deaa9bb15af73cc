package rlsconfig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/transport/weirrls"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// NewRules returns the rules of c, which must have its defaults. Their limiters are those of the file, and for each
// rate_limit in mode exact one of its own, so that the dashboard shows it and a reload keeps what it has counted. s is the
// store of the counters, or nil.
func (c RLS) NewRules(b *reload.SectionBuilder, s *store.Store) (*weirrls.Rules, error) {
	return c.rules(func(path []string, open bool, d Descriptor) (*weirrls.Limit, error) {
		return c.limit(b, s, path, open, d)
	})
}

// rules returns the rules of c, with the limits that limit returns. The path of a limit is its domain and then the names of
// the rules that it is in. open reports whether one of them is for more values than one, each with a counter of its own.
func (c RLS) rules(limit func(path []string, open bool, d Descriptor) (*weirrls.Limit, error)) (*weirrls.Rules, error) {
	var descriptors func(path []string, open bool, all []Descriptor) ([]weirrls.Descriptor, error)
	descriptors = func(path []string, open bool, all []Descriptor) ([]weirrls.Descriptor, error) {
		made := make([]weirrls.Descriptor, len(all))
		for i, d := range all {
			at := append(slices.Clip(path), d.path())
			open := open || d.open()
			inner, err := descriptors(at, open, d.Descriptors)
			if err != nil {
				return nil, err
			}
			made[i] = weirrls.Descriptor{
				Key: d.Key, Value: d.Value, Descriptors: inner, ShareThreshold: d.ShareThreshold,
				DetailedMetric: d.DetailedMetric, ValueToMetric: d.ValueToMetric, Metadata: d.Metadata,
			}
			if d.RateLimit == nil {
				continue
			}
			if made[i].Limit, err = limit(at, open, d); err != nil {
				return nil, err
			}
		}
		return made, nil
	}
	domains := make([]weirrls.Domain, len(c.Domains))
	for i, d := range c.Domains {
		all, err := descriptors([]string{d.Domain}, false, d.Descriptors)
		if err != nil {
			return nil, err
		}
		domains[i] = weirrls.Domain{Name: d.Domain, Descriptors: all}
	}
	return weirrls.NewRules(domains...)
}

// limit returns the limit of a rule.
func (c RLS) limit(b *reload.SectionBuilder, s *store.Store, path []string, open bool, d Descriptor) (*weirrls.Limit, error) {
	l := *d.RateLimit
	made := &weirrls.Limit{
		Name: l.Name, Unlimited: l.Unlimited, Shadow: d.ShadowMode, Quota: d.QuotaMode,
		OnOverrun: l.OnOverrun, FailOpen: l.FailOpen,
	}
	for _, r := range l.Replaces {
		made.Replaces = append(made.Replaces, r.Name)
	}
	switch {
	case l.Limiter != "":
		of, err := b.Limiter(l.Limiter)
		if err != nil {
			return nil, err
		}
		if !byKey(b.File, l.Limiter) {
			made.Limiter = of
			break
		}
		partitioned, _ := b.Partitioned(l.Limiter)
		made.Partitioned = byCounter{of, partitioned}
	case l.RequestsPerUnit != nil && (c.modeOf(l) == Envoy || *l.RequestsPerUnit == 0): // no limiter has 0 permits
		made.OnOverrun = weirrls.OverrunNothing // a Window has no other
		made.Window = &weirrls.Window{RequestsPerUnit: *l.RequestsPerUnit, Unit: l.Unit.inService()}
	case l.RequestsPerUnit != nil:
		made.Partitioned = c.window(b, s, limiterName(path), open, windowOf(*l.RequestsPerUnit, l.Unit))
	}
	return made, nil
}

// byKey reports whether the limiter, or one in its chain, has the key [KeyName].
func byKey(f *reload.File, name string) (is bool) {
	fileconfig.Members(f, name, func(info reload.LimiterInfo) { is = is || info.Partitioned })
	return is
}

// segments is the number of steps in which the window of a rate_limit in mode exact slides. A permit comes back when its
// segment leaves the window, after nine tenths of the unit at the earliest.
const segments = 10

// windowOf returns the options of a rate_limit in mode exact.
func windowOf(requests uint32, unit *Unit) limiter.SlidingWindowOptions {
	return limiter.SlidingWindowOptions{
		PermitLimit: int(min(uint64(requests), math.MaxInt)), Window: unit.length(), SegmentsPerWindow: segments, //nolint:gosec // at most MaxInt
	}
}

// window returns the limiter of a rate_limit in mode exact. A file can have tens of thousands of them, most for one value.
func (c RLS) window(b *reload.SectionBuilder, s *store.Store, name string, open bool, each limiter.SlidingWindowOptions) limiter.Partitioned[string] {
	if s != nil {
		return registry.SharedPartitioned(b.Builder, s, name, each, &store.LimiterOptions{Outage: c.Counters.Outage, LocalShare: c.Counters.LocalShare})
	}
	self := func(key string) string { return key }
	o := &limiter.PartitionedOptions{MaxPartitions: c.Counters.MaxKeys}
	if !open {
		o.ExpectedPartitions = 1
	}
	return registry.Partitioned(b.Builder, name, self, each, o)
}

// maxLimiterName bounds the names of limiters: those of a store have at most 200 bytes.
const maxLimiterName = 160

// limiterName returns the name of the limiter of a rule, which is of letters that the names of limiters in stores can have.
// If those of the path are others, or too many, a hash of it makes the name another one than that of any other rule.
func limiterName(path []string) string {
	name := PipelineName + "/" + strings.Join(path, "/")
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r) {
			return r
		}
		return '_'
	}, name)
	slashed := slices.ContainsFunc(path, func(part string) bool { return strings.Contains(part, "/") })
	if plain == name && !slashed && len(name) <= maxLimiterName {
		return name
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", path))
	return plain[:min(len(plain), maxLimiterName)] + "-" + hex.EncodeToString(sum[:8])
}

// contextKey is the key of the key of the counter in the context of a call of a limiter of the file.
type contextKey struct{}

func keyed(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, contextKey{}, key)
}

// keyOf is the key function [KeyName]. A limiter that is asked elsewhere, such as in a pipeline, has the key "".
func keyOf(ctx context.Context) string {
	key, _ := ctx.Value(contextKey{}).(string)
	return key
}

// byCounter adapts a limiter of the file that is partitioned by [KeyName], or a chain with such a limiter, to one that is
// partitioned by the key of the counter.
type byCounter struct {
	limiter     limiter.Limiter
	partitioned limiter.Partitioned[context.Context] // nil: it is a chain
}

// TryAcquire implements [limiter.Partitioned].
func (b byCounter) TryAcquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return b.limiter.TryAcquire(keyed(ctx, key), n)
}

// Acquire implements [limiter.Partitioned].
func (b byCounter) Acquire(ctx context.Context, key string, n int) (limiter.Lease, error) {
	return b.limiter.Acquire(keyed(ctx, key), n)
}

// Peek implements [limiter.PartitionedPeeker]. The error is [errors.ErrUnsupported] if the limiter cannot peek.
func (b byCounter) Peek(ctx context.Context, key string, n int) (limiter.Lease, error) {
	if p, ok := b.limiter.(limiter.Peeker); ok {
		return p.Peek(keyed(ctx, key), n)
	}
	return limiter.Lease{}, fmt.Errorf("a limiter of %T has no Peek: %w", b.limiter, errors.ErrUnsupported)
}

// Charge implements [limiter.PartitionedCharger]. The error is [errors.ErrUnsupported] if the limiter cannot be charged.
func (b byCounter) Charge(ctx context.Context, key string, n int) (limiter.Level, error) {
	if c, ok := b.limiter.(limiter.Charger); ok {
		return c.Charge(keyed(ctx, key), n)
	}
	return limiter.Level{}, fmt.Errorf("a limiter of %T has no Charge: %w", b.limiter, errors.ErrUnsupported)
}

// Limits is that of [limiter.PartitionedLimiter]. Those of a chain are not known.
func (b byCounter) Limits(key string) (l rate.Limits, err error) {
	if of, ok := b.partitioned.(interface {
		Limits(resource context.Context) (rate.Limits, error)
	}); ok {
		return of.Limits(keyed(context.Background(), key))
	}
	return l, nil
}
