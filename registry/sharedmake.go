package registry

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// A maker has a store make the limiter that goes with the options.
type maker[L any, O LimiterOptions] func(s *store.Store, name string, o O, how store.LimiterOptions) (L, error)

func makeShared[O LimiterOptions](s *store.Store, name string, o O, how store.LimiterOptions) (*store.Limiter[O], error) {
	var l any
	var err error
	switch o := any(o).(type) {
	case limiter.TokenBucketOptions:
		l, err = s.TokenBucket(name, o, &how)
	case limiter.FixedWindowOptions:
		l, err = s.FixedWindow(name, o, &how)
	case limiter.SlidingWindowOptions:
		l, err = s.SlidingWindow(name, o, &how)
	case limiter.ConcurrencyOptions:
		l, err = s.Concurrency(name, o, &how)
	}
	return l.(*store.Limiter[O]), err
}

func makeSharedPartitioned[O LimiterOptions](s *store.Store, name string, o O, how store.LimiterOptions) (*store.Partitioned[O], error) {
	var l any
	var err error
	switch o := any(o).(type) {
	case limiter.TokenBucketOptions:
		l, err = s.PartitionedTokenBucket(name, o, &how)
	case limiter.FixedWindowOptions:
		l, err = s.PartitionedFixedWindow(name, o, &how)
	case limiter.SlidingWindowOptions:
		l, err = s.PartitionedSlidingWindow(name, o, &how)
	case limiter.ConcurrencyOptions:
		l, err = s.PartitionedConcurrency(name, o, &how)
	}
	return l.(*store.Partitioned[O]), err
}

// refuses returns what a store says of such a limiter. It is asked also where the limiter is
// there already, which gets the options when nothing can be refused any more.
func (m maker[L, O]) refuses(s *store.Store, name string, o O, how store.LimiterOptions) error {
	if s == nil {
		return notSet("s")
	}
	return store.Check(name, o, &how)
}

// closed is in the place of a limiter that could not be made: the build function can go on
// with it.
func (m maker[L, O]) placeholder() L {
	s := newPlaceholderStore()
	l, _ := m(s, "none", validOptions[O](), store.LimiterOptions{})
	_ = s.Close()
	return l
}

// something is valid.
func validOptions[O LimiterOptions]() (o O) {
	switch o := any(&o).(type) {
	case *limiter.TokenBucketOptions:
		*o = limiter.TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second}
	case *limiter.FixedWindowOptions:
		*o = limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Second}
	case *limiter.SlidingWindowOptions:
		*o = limiter.SlidingWindowOptions{PermitLimit: 1, Window: time.Second, SegmentsPerWindow: 1}
	case *limiter.ConcurrencyOptions:
		*o = limiter.ConcurrencyOptions{PermitLimit: 1}
	}
	return o
}

// nowhere is the backend of a store whose limiters are used for nothing.
type placeholderBackend struct{ backend.Backend }

var errPlaceholder = errors.New("registry: there is no store")

func newPlaceholderStore() *store.Store {
	s, _ := store.New(placeholderBackend{}, nil)
	return s
}

func (placeholderBackend) Load(context.Context, string) (*backend.Definition, int64, error) {
	return nil, 0, errPlaceholder
}

func (placeholderBackend) Close() error { return nil }
