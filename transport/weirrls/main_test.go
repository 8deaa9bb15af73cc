package weirrls

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	isOK   = ratelimitv3.RateLimitResponse_OK
	isOver = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// newService returns a service with one domain called "edge".
func newService(t testing.TB, o *ServiceOptions, descriptors ...Descriptor) *Service {
	t.Helper()
	rules, err := NewRules(Domain{Name: "edge", Descriptors: descriptors})
	require.NoError(t, err)
	s, err := NewService(rules, o)
	require.NoError(t, err)
	return s
}

// newStore returns a store that the test closes.
func newStore(t testing.TB, b backend.Backend, o *store.Options) *store.Store {
	s := weir.Must(store.New(b, o))
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// newBucket returns a bucket of n permits, of which one comes back in an hour.
func newBucket(t testing.TB, n int) *limiter.TokenBucket {
	b := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: n, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}))
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// describe returns a descriptor of keys and values in turn.
func describe(keysAndValues ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(keysAndValues); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return d
}

// withHits returns d with hits_addend.
func withHits(n uint64, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

// giveBack returns d with n negative hits.
func giveBack(n uint64, d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return withHits(n, d)
}

func request(descriptors ...*common.RateLimitDescriptor) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors}
}

// ask asks the service, which must not return an error.
func ask(t testing.TB, s *Service, descriptors ...*common.RateLimitDescriptor) *ratelimitv3.RateLimitResponse {
	t.Helper()
	r, err := s.ShouldRateLimit(t.Context(), request(descriptors...))
	require.NoError(t, err)
	require.Len(t, r.Statuses, len(descriptors))
	return r
}

// codes returns the overall code and the codes of the statuses.
func codesOf(r *ratelimitv3.RateLimitResponse) (list []ratelimitv3.RateLimitResponse_Code) {
	list = append(list, r.OverallCode)
	for _, s := range r.Statuses {
		list = append(list, s.Code)
	}
	return list
}

// A codeList is what codesOf returns.
type codeList = []ratelimitv3.RateLimitResponse_Code

func headersOf(r *ratelimitv3.RateLimitResponse) map[string]string {
	headers := make(map[string]string)
	for _, h := range r.ResponseHeadersToAdd {
		headers[h.Key] = h.Value
	}
	return headers
}

// A pot is a limiter that can do what a bucket can, and that nothing refills.
type pot struct {
	mu      sync.Mutex
	limit   int64
	left    int64
	full    time.Duration // of every level that is not full
	failure error         // of every call
	hook    func()        // called by every call
	asked   int
}

func newPot(limit int64) *pot {
	p := &pot{limit: limit, left: limit, full: time.Minute}
	return p
}

func (p *pot) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	if p.hook != nil {
		p.hook()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	switch {
	case p.failure != nil:
		return limiter.Lease{}, p.failure
	case int64(n) > p.limit:
		return limiter.Lease{}, limiter.ErrPermitCount
	case int64(max(n, 1)) > p.left:
		return custom.Rejected(p.full, ""), nil
	}
	p.left -= int64(n)
	return custom.GrantedBy(p, n, 0), nil
}

func (p *pot) Acquire(context.Context, int) (limiter.Lease, error) {
	panic("the service does not wait")
}

func (p *pot) Charge(_ context.Context, n int) (limiter.Level, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return limiter.Level{}, p.failure
	}
	p.left = max(min(p.left-int64(n), p.limit), math.MinInt32)
	level := limiter.Level{Remaining: p.left}
	if p.left < p.limit {
		level.Full = p.full
	}
	return level, nil
}

func (p *pot) Release(int, int64) {}

func (p *pot) Refund(n int, _ int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += int64(n)
}

func (p *pot) remaining() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

func withDomain(domain string, descriptors ...*common.RateLimitDescriptor) *ratelimitv3.RateLimitRequest {
	r := request(descriptors...)
	r.Domain = domain
	return r
}
