package weirhttp

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// maxAccounts bounds how many accounts a Gate knows at the same time. The requests of one more are not held back.
const maxAccounts = 1024

// GateOptions are the options of a [Gate]. With the zero value no request waits.
type GateOptions struct {
	// QueueLimit is how many requests of an account can wait whose paths have the same first segment. All others are rejected. The
	// default is 0.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which request goes on first. The default is [limiter.OldestFirst]. With [limiter.Fair], tenants take turns; see
	// [limiter.WithTenant].
	QueueOrder limiter.QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many requests of a tenant can wait if QueueOrder is Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty" yaml:"queue_limit_per_tenant,omitempty"`
	// MaxPause bounds a pause, and the time until a quota is there again: requests go on earlier than the server asked if it asks for
	// more. The default is a minute; -1 is no limit.
	MaxPause time.Duration `json:"max_pause,omitempty" yaml:"max_pause,omitempty"`
	// Account returns whose quota a request uses, at its host. If nil, that is who has the credential in Authorization, Api-Key,
	// X-Api-Key or Private-Token. Quotas of accounts are independent: if an API has a quota for each model, return the credential and the
	// model.
	Account func(r *http.Request) string `json:"-" yaml:"-"`
	// Quotas returns what a response says of quotas, in addition to what [QuotasOf] understands, or in its place: call it.
	Quotas func(resp *http.Response) []Quota `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *GateOptions) Validate() error {
	var problems validate.Problems
	if o == nil {
		return nil
	}
	problems.AtLeast("QueueLimit", o.QueueLimit, 0)
	if o.MaxPause < -1 {
		problems.Add("MaxPause", o.MaxPause, "must be at least 0, or -1 for no limit")
	}
	if err := problems.Err("weirhttp"); err != nil {
		return err
	}
	return o.queue().Validate()
}

func (o *GateOptions) queue() *limiter.PoolOptions {
	return &limiter.PoolOptions{QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, QueueLimitPerTenant: o.QueueLimitPerTenant}
}

// A Gate is a strategy that keeps to what servers say of their limits. An account is a credential at a host; see
// [GateOptions.Account].
//
// If a server answers one request with 429 or 503 and Retry-After, other requests of the account would get the same answer: the Gate
// pauses them. So it does for a 403 with Retry-After, or with a quota of which nothing remains, as GitHub answers.
//
// If responses say how much of a quota remains, as many requests go on as are left, less what is under way; see [QuotasOf] for the
// fields that it understands. The others wait until the quota is there again. If it comes back all at once, one request then goes ahead,
// and the others follow when its answer has said what there is, or after a second. A quota applies to requests whose path has the same
// first segment as one whose response has told of it, such as /search. A request costs one of each quota, unless [limiter.WithCosts] says otherwise for a quota of that
// name, such as "tokens". What others take with the same credential is seen with the next response. What a server says too late or
// wrongly does no harm that lasts: the newest request's answer counts, a malformed field is ignored, and no wait is longer than
// [GateOptions.MaxPause].
//
// During a pause requests are rejected with a [*ratelimit.RejectedError], which has the remaining time, or they wait if the options
// allow it. A request that would wait beyond its deadline is rejected at once. Put the Gate inside the retry:
//
//	gate, err := weirhttp.NewGate(&weirhttp.GateOptions{QueueLimit: 100})
//	p, err := pipeline.New("api", retry.New(nil), gate, timeout.New(5*time.Second, nil))
//	transport, err := weirhttp.NewTransport(p, nil)
//
// A Gate knows 1024 accounts at most; it forgets one that nothing holds back for another one. In a pipeline that is not that of a
// [Transport], it does nothing: it does not know the request. Make a Gate with [NewGate]. It can be in several pipelines, and is safe
// for concurrent use.
type Gate struct {
	options GateOptions
	enter   *ratelimit.Strategy
	seed    maphash.Seed

	mu       sync.Mutex
	accounts map[accountKey]*account
}

type accountKey struct{ host, account string }

// NewGate returns a Gate. If o is nil, the defaults apply. The error is a [weir.OptionsError].
func NewGate(o *GateOptions) (*Gate, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g := &Gate{options: *cmp.Or(o, new(GateOptions)), seed: maphash.MakeSeed(), accounts: make(map[accountKey]*account)}
	if g.options.MaxPause = cmp.Or(g.options.MaxPause, time.Minute); g.options.MaxPause < 0 {
		g.options.MaxPause = math.MaxInt64
	}
	if g.options.Quotas == nil {
		g.options.Quotas = QuotasOf
	}
	if g.options.Account == nil {
		g.options.Account = g.credential
	}
	g.enter = ratelimit.New(entry{g}, nil)
	return g, nil
}

// credential is the default of GateOptions.Account: a hash, so that no credential is kept.
func (g *Gate) credential(r *http.Request) string {
	var h maphash.Hash
	h.SetSeed(g.seed)
	for _, name := range [...]string{"Authorization", "Api-Key", "X-Api-Key", "Private-Token"} {
		_, _ = h.WriteString(r.Header.Get(name) + "\n")
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// A flight is a request that is under way, in the context of its execution.
type flight struct {
	of      *account // nil: it was not let in, or the account is unknown
	costs   limiter.Costs
	segment string // the first one of the path
	serial  uint64 // of those of the account
}

type flightKey struct{}

// cost returns what the request costs of a quota.
func (f *flight) cost(quota string) float64 {
	if n, ok := f.costs[quota]; ok {
		return float64(max(n, 0))
	}
	return 1
}

// Execute runs next when the account has room, and learns from the response. It implements [pipeline.Strategy].
func (g *Gate) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	f := &flight{costs: limiter.CostsOf(ctx)}
	if r := RequestFrom(ctx); r != nil && r.URL != nil {
		f.segment = segmentOf(r.URL.Path)
	}
	learnt := false
	defer func() { // also if next panics
		if !learnt && f.of != nil {
			f.of.land(f, nil, nil, 0)
		}
	}()
	value, err := g.enter.Execute(context.WithValue(ctx, flightKey{}, f), next)
	resp, _ := value.(*http.Response)
	if f.of != nil && resp != nil {
		wait, said := retryAfterOf(resp)
		if !said {
			wait = -1
		}
		quotas := g.options.Quotas(resp)
		learnt = true
		f.of.land(f, resp, quotas, wait)
	}
	return value, err
}

// segmentOf returns the first segment of a path.
func segmentOf(path string) string {
	segment, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return segment[:min(len(segment), longestName)]
}

// longestName bounds the names of quotas, and the segments of paths, in bytes.
const longestName = 100

// accountOf returns the account of a request, or nil if there is no room for it, or no request.
func (g *Gate) accountOf(ctx context.Context) *account {
	r := RequestFrom(ctx)
	if r == nil {
		return nil
	}
	key := accountKey{HostFrom(ctx), g.options.Account(r)}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.accounts[key]
	if a == nil {
		if len(g.accounts) >= maxAccounts {
			for other, a := range g.accounts {
				if a.isIdle() {
					delete(g.accounts, other)
				}
			}
		}
		if len(g.accounts) >= maxAccounts {
			return nil
		}
		a = &account{maxPause: g.options.MaxPause, paused: math.MinInt64, quotas: map[string]*quota{}, flights: map[*flight]struct{}{}, queues: map[string]*limiter.Pool{}}
		a.options = g.options.queue()
		g.accounts[key] = a
	}
	return a
}

// An entry is the limiter of the Gate, which rejects requests that their account has no room for.
type entry struct{ *Gate }

// TryAcquire is part of [limiter.Limiter]. The strategy does not call it.
func (g entry) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return g.Acquire(ctx, n)
}

// Acquire waits until the account has room, if the queue has. It does not wait beyond the deadline of ctx.
func (g entry) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if err := pipeline.ContextError(ctx); err != nil {
		return limiter.Lease{}, err
	}
	a := g.accountOf(ctx)
	if a == nil {
		return custom.Granted(n, nil), nil
	}
	segment := ""
	if f, is := ctx.Value(flightKey{}).(*flight); is {
		segment = f.segment
	}
	queue := a.queue(segment)
	if deadline, bounded := ctx.Deadline(); bounded {
		lease, err := queue.TryAcquire(ctx, n)
		if after, known := lease.RetryAfter(); err != nil || lease.Acquired() || known && time.Until(deadline) <= after {
			return lease, err
		}
	}
	return queue.Acquire(ctx, n)
}

// An account has what servers have said of its quotas, and is the limiter whose permits they are.
type account struct {
	maxPause time.Duration
	options  *limiter.PoolOptions

	mu       sync.Mutex
	queues   map[string]*limiter.Pool // by the first segment of the path, because quotas are
	paused   time.Duration            // until when, by clock.Now
	refused  int                      // how often in a row, without being told how long
	serial   uint64
	flights  map[*flight]struct{}
	quotas   map[string]*quota
	segments map[string]bool // first segments of paths with the names of the quotas that apply to them
}

// maxQuotas bounds how many quotas are known of an account.
const maxQuotas = 32

// A quota is what a server has last said of a policy.
type quota struct {
	limit     float64       // 0: unknown
	said      float64       // what remained, as the server has said
	remaining float64       // at the moment at, less what is under way
	at        time.Duration // by clock.Now
	reset     time.Duration // when it is all there again; 0: unknown
	cut       bool          // reset is earlier than the server has said, because of MaxPause
	refill    float64       // a nanosecond, if it comes back bit by bit; 0 if all at reset
	serial    uint64        // of the request whose answer said so
	ahead     *flight       // the one that has gone ahead after reset
	alone     time.Duration // until when it is the only one
	likely    int           // how many responses in a row looked like one of a bucket
}

// maxQueues bounds the queues of an account. Beyond it, requests share the one of the empty segment.
const maxQueues = 32

// queue returns the queue of a request.
func (a *account) queue(segment string) *limiter.Pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queues[segment] == nil && len(a.queues) >= maxQueues {
		segment = ""
	}
	q := a.queues[segment]
	if q == nil {
		q = weir.Must(limiter.AnyOf(a.options, a))
		a.queues[segment] = q
	}
	return q
}

// isIdle reports whether nothing is known that holds back a request.
func (a *account) isIdle() bool {
	now := clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.paused > now || len(a.flights) > 0 {
		return false
	}
	for _, q := range a.queues {
		if q.Statistics().QueuedPermits > 0 {
			return false
		}
	}
	for _, q := range a.quotas {
		if q.reset != 0 && q.reset > now {
			return false
		}
	}
	return true
}

// applies reports whether a quota applies to a request: responses to requests with that first segment have told of it. Which one
// that will be of another segment is known with its first response.
func (a *account) applies(name, segment string) bool { return a.segments[segment+"\x00"+name] }

// Acquire is part of [limiter.Limiter]. The queue does not call it.
func (a *account) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return a.TryAcquire(ctx, n)
}

// TryAcquire lets a request go on if its quotas have room.
func (a *account) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	f, _ := ctx.Value(flightKey{}).(*flight)
	if f == nil {
		return custom.Granted(n, nil), nil
	}
	now := clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.paused > now {
		return custom.Rejected(a.paused-now, "paused as the server asked"), nil
	}
	for name, q := range a.quotas {
		if !a.applies(name, f.segment) {
			continue
		}
		if wait := q.wait(now, f.cost(name), len(a.flights) > 0); wait != 0 {
			return custom.Rejected(max(wait, 0), "the server's quota is used up"), nil
		}
	}
	a.serial++
	f.of, f.serial = a, a.serial
	a.flights[f] = struct{}{}
	for name, q := range a.quotas {
		if a.applies(name, f.segment) {
			q.take(now, f, f.cost(name), a.maxPause)
		}
	}
	return custom.GrantedRefundable(n, nil, func() { a.land(f, nil, nil, 0) }), nil
}

// wait returns how long a request must wait that costs that much: 0 if it need not, and -1 if it is until another one has its answer.
func (q *quota) wait(now time.Duration, cost float64, underWay bool) time.Duration {
	if q.reset != 0 && now >= q.reset {
		if q.ahead == nil || now >= q.alone {
			return 0
		}
		return -1
	}
	left := q.left(now)
	switch cost = q.bounded(cost); {
	case left >= cost:
		return 0
	case q.reset == 0 && underWay:
		return -1
	case q.reset == 0: // only the next answer can tell
		return 0
	}
	wait := q.reset - now
	if q.refill > 0 {
		wait = time.Duration(math.Ceil(min((cost-left)/q.refill, float64(wait))))
	}
	return max(wait, 1)
}

// bounded returns a cost that there can be room for.
func (q *quota) bounded(cost float64) float64 {
	if q.limit > 0 {
		return min(cost, q.limit)
	}
	return cost
}

// left returns what is left of a quota.
func (q *quota) left(now time.Duration) float64 {
	left := q.remaining + q.refill*float64(now-q.at)
	if q.limit > 0 && q.refill > 0 {
		left = min(left, q.limit)
	}
	return left
}

// take takes what a request costs. The first one after the reset goes ahead: the end of a window is known to a second, and what others
// take is not known. All that the limit allows follow it when it has its answer, or that second is over.
func (q *quota) take(now time.Duration, f *flight, cost float64, maxPause time.Duration) {
	switch {
	case q.reset == 0 || now < q.reset:
	case q.cut || q.limit == 0 || q.ahead == nil && q.refill == 0:
		q.ahead, q.alone = f, saturate.Add(now, time.Second)
		if q.cut {
			q.alone = saturate.Add(now, maxPause)
		}
		return
	default:
		if q.remaining = q.limit; q.ahead != nil {
			q.remaining--
		}
		q.at, q.reset, q.refill, q.ahead = now, 0, 0, nil
	}
	q.remaining, q.at = q.left(now)-q.bounded(cost), now
}

// land ends a flight: with a response, or without one if resp is nil. wait is what the response asks for, or below 0.
func (a *account) land(f *flight, resp *http.Response, quotas []Quota, wait time.Duration) {
	a.mu.Lock()
	if _, under := a.flights[f]; !under {
		a.mu.Unlock()
		return
	}
	now := clock.Now()
	delete(a.flights, f)
	for _, said := range quotas {
		if len(said.Name) <= longestName {
			a.learn(now, f, said)
		}
	}
	for _, q := range a.quotas {
		if q.ahead == f { // its answer has said nothing of the quota
			q.ahead = nil
			if resp != nil {
				q.remaining, q.at, q.reset = q.limit, now, 0
			}
		}
	}
	if resp != nil {
		a.pauseAsAsked(now, resp, quotas, wait)
	}
	queues := slices.Collect(maps.Values(a.queues))
	a.mu.Unlock()
	for _, q := range queues {
		q.Wake()
	}
}

// pauseAsAsked pauses the account if the response is a refusal.
func (a *account) pauseAsAsked(now time.Duration, resp *http.Response, quotas []Quota, wait time.Duration) {
	usedUp := time.Duration(-1) // when the first quota of which nothing is left is there again
	for _, q := range quotas {
		if q.Remaining == 0 && q.Reset > usedUp {
			usedUp = q.Reset
		}
	}
	refused := false
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		refused = true
	case http.StatusServiceUnavailable:
		refused = wait >= 0
	case http.StatusForbidden:
		refused = wait >= 0 || usedUp >= 0
	}
	if !refused {
		a.refused = 0
		return
	}
	if wait < 0 && usedUp > 0 {
		wait = usedUp
	}
	if wait < 0 {
		if a.paused > now { // refused at the same time as the one before
			return
		}
		wait = time.Second << min(a.refused, 20)
		a.refused++
	}
	a.paused = max(a.paused, saturate.Add(now, min(wait, a.maxPause)))
}

// learn notes what the response to f has said of a quota.
func (a *account) learn(now time.Duration, f *flight, said Quota) {
	if a.segments == nil {
		a.segments = map[string]bool{}
	}
	q := a.quotas[said.Name]
	if q == nil {
		if len(a.quotas) >= maxQuotas {
			for name, old := range a.quotas {
				if old.reset != 0 && old.reset < now {
					delete(a.quotas, name)
				}
			}
		}
		if len(a.quotas) >= maxQuotas {
			return
		}
		q = &quota{}
		a.quotas[said.Name] = q
	}
	if mark := f.segment + "\x00" + said.Name; len(a.segments) < 16*maxQuotas {
		a.segments[mark] = true
	}
	if said.Limit > 0 {
		q.limit = float64(said.Limit)
	}
	if said.Remaining < 0 {
		return
	}
	wasAhead := q.ahead == f
	if wasAhead {
		q.ahead = nil
	}
	if f.serial < q.serial && q.refill > 0 { // a request that was sent later has been answered
		return
	}
	remaining := float64(said.Remaining)
	reset, refill := time.Duration(0), 0.0
	if said.Reset > 0 {
		reset = saturate.Add(now, min(said.Reset, a.maxPause))
		if missing := q.limit - remaining; missing > 0 && (said.Refills || q.looksLikeABucket(said)) {
			refill = missing / float64(said.Reset)
		}
	}
	switch apart := reset - q.reset; {
	case reset == 0 || q.reset == 0 || refill > 0 || wasAhead:
	case apart <= -sameWindow && f.serial < q.serial:
		return // it is of an earlier window
	case apart.Abs() < sameWindow:
		remaining = min(remaining, q.said) // nothing comes back in a window, so the least that was said is the latest
	}
	q.serial, q.said, q.at, q.reset, q.refill = f.serial, remaining, now, reset, refill
	q.cut = said.Reset > a.maxPause
	q.remaining = remaining
	for other := range a.flights { // the server has counted them, or will
		if a.applies(said.Name, other.segment) {
			q.remaining -= other.cost(said.Name)
		}
	}
}

// sameWindow is how far the ends of a window can be apart that two responses tell, in whole seconds and after different times under way.
const sameWindow = 2 * time.Second

// looksLikeABucket reports whether the last three responses could be those of a bucket, that is full after the part of the window that
// has been used. A window is full when it ends, however much has been used.
func (q *quota) looksLikeABucket(said Quota) bool {
	if said.Window <= 0 || q.limit <= 0 {
		return false
	}
	full := time.Duration(float64(said.Window) * (q.limit - float64(said.Remaining)) / q.limit)
	if (said.Reset - full).Abs() > time.Second+said.Window/20 {
		q.likely = 0
		return false
	}
	q.likely++
	return q.likely >= 3
}
