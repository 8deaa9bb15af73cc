package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A Limiter is what the calls about one limiter have in common.
type Limiter interface {
	Name() string
	// Definition returns the definition in force, or nil if none is known yet.
	Definition() *backend.Definition
	// AwaitDefinition returns when the definition in force has this version or a later one. With version 0, any will do.
	AwaitDefinition(version int64) error
	// Answered is called with the answer to an Acquire before its caller has it.
	Answered(q *Call)
	// Unclaimed is called if what q was granted, or may have been, belongs to no caller. reply is the answer about a lease, or
	// nil if it was lost.
	Unclaimed(q *Call, reply *backend.LeaseRequest)
}

// An Op is what a call does. Only calls with the same Op go together.
type Op uint8

// The operations.
const (
	Decide Op = iota // all that buckets and windows do: Call.Requests
	Acquire
	Renew
	Release
	ops
)

// A Call is what one caller asks about one key. The answer is valid once Ask has returned it, or in OnAnswer if Err is nil.
type Call struct {
	Limiter  Limiter
	Op       Op
	Key      string
	Requests []backend.Request     // Decide
	Lease    *backend.LeaseRequest // the other operations; the answer is in Reply
	// CountLate says that what the call is granted stays taken if the answer is late, and that it is sent although its caller
	// waits no more, as long as that is within the timeout. If the store takes fewer requests than come, the rest is not sent:
	// it would pile up.
	CountLate bool
	OnAnswer  func() // not nil: it is called with the answer, and no caller waits
	Counted   bool   // for the Limiter

	// Definition is that by which the store has decided. Before the answer it is nil, or the definition under which the permits
	// to give back were granted.
	Definition *backend.Definition
	Answer
	Err error

	state  atomic.Int32
	caller caller
	repair repairs
	one    oneRequest
}

// A caller waits for the answer to a call. The zero caller stands for none.
type caller struct {
	gone  <-chan struct{} // closed when the caller's context ends; nil: it never does
	done  chan struct{}   // closed when there is an answer
	since time.Time       // CountLate: when the call was made

	number int64 // in a simulation: counts the calls with a caller
}

// Repairs are how often a call was not decided, and since when.
type repairs struct {
	n     int
	since time.Time
}

// An Answer is what the store has answered to a call.
type Answer struct {
	Granted []int64 // of each request: see [backend.Batch]
	After   []After // each request
	State   rate.State
	Now     int64                 // the store's time
	Reply   *backend.LeaseRequest // to Lease
	Sent    time.Time
}

// An After is what is known right after a request.
type After struct {
	Receipt rate.Receipt // of what it has taken
	Missing int64
}

// A oneRequest backs the slices of a call, which usually has one request.
type oneRequest struct {
	request [1]backend.Request
	granted [1]int64
	after   [1]After
}

// The states of a call.
const (
	open     int32 = iota
	answered       // by the store
	late           // its caller was told that the store could not be asked, or waits no more
	left           // its caller's context has ended
)

// NewDecide returns a call with requests about a key of a bucket or window.
func NewDecide(l Limiter, key string, requests ...backend.Request) *Call {
	q := &Call{Limiter: l, Key: key}
	q.Requests = append(q.one.request[:0], requests...)
	return q
}

// NewLease returns a call about a lease.
func NewLease(l Limiter, op Op, r backend.LeaseRequest) *Call {
	both := &struct {
		call Call
		r    backend.LeaseRequest
	}{call: Call{Limiter: l, Op: op, Key: r.Key}, r: r}
	both.call.Lease = &both.r
	return &both.call
}

// compareInSimulation sorts the calls of one instant, equal ones by the order of their callers.
func compareInSimulation(x, y *Call) int {
	order := func(q *Call) string { return fmt.Sprintf("%q %q %v", q.Limiter.Name(), q.Key, q.Requests) }
	return cmp.Or(strings.Compare(order(x), order(y)), cmp.Compare(x.caller.number, y.caller.number))
}

// tookNothing reports whether the answer has changed nothing in the store.
func (q *Call) tookNothing() bool {
	if q.Op == Decide {
		return slices.Max(q.Granted) <= 0
	}
	return !q.Reply.OK || q.Lease.Permits == 0
}

// Wait returns how long it takes until n permits are available, after all requests of the round trip.
func (q *Call) Wait(n int64) time.Duration {
	return saturate.Micros(q.Definition.Wait(&q.State, q.Now, n))
}

// claim reports whether q was open. Only the goroutine that claims q sets Err or answers the caller.
func (q *Call) claim(state int32) bool { return q.state.CompareAndSwap(open, state) }

// finish answers the caller. The goroutine has claimed q.
func (q *Call) finish(err error) {
	q.Err = err
	if q.OnAnswer != nil {
		q.OnAnswer()
	} else {
		close(q.caller.done)
	}
}

// deliver answers with what the store has answered.
func (q *Call) deliver() {
	switch {
	case q.claim(answered):
		q.finish(nil)
	case q.CountLate && q.state.Load() == late:
	case q.Op == Decide || q.Op == Acquire && q.Reply.OK && q.Lease.Permits > 0:
		q.Limiter.Unclaimed(q, q.Reply)
	}
}

// fail answers that the store could not be asked. uncertain reports whether the call may have been carried out.
func (q *Call) fail(err error, uncertain bool) {
	if uncertain && q.Op == Acquire && q.Lease.Permits > 0 {
		q.Limiter.Unclaimed(q, nil)
	}
	if q.claim(late) {
		q.finish(Unavailable(err))
	}
}

// dropped reports whether q is not sent because its caller has left. If so, it is answered.
func (q *Call) dropped(timeout time.Duration) bool {
	if ctxerr.Closed(q.caller.gone) && q.claim(left) {
		q.finish(errCallerLeft)
	}
	switch q.state.Load() {
	case open:
		return false
	case late:
		return !q.CountLate || time.Since(q.caller.since) >= timeout
	default:
		return true
	}
}

// await waits for the answer. ctx is the caller's.
func (q *Call) await(ctx context.Context, limit time.Time) error {
	if done := q.caller.done; !ctxerr.Closed(done) {
		switch state, err := waitUntil(done, q.caller.gone, limit); {
		case err == nil:
		case q.claim(state):
			q.Err = err
		default:
			<-done
		}
	}
	deterministic.Take(ctx) // the answer goes to what all callers of the key use
	return decided(ctx, q.Err)
}

// ErrUnavailable means that the store could not be asked. It is wrapped with the reason.
var ErrUnavailable = errors.New("store: unavailable")

var (
	errTimeout       = errors.New("no answer in time")
	errReconfiguring = errors.New("the limiter is reconfigured too often")
	errNoReturn      = errors.New("the backend has panicked, or has ended its goroutine")
	// errCallerLeft means that the caller's context has ended. Only the caller's goroutine asks the context for its error.
	// A context is the program's code: if it panicked on a goroutine of this package, or under a lock, what was granted
	// would be lost.
	errCallerLeft = errors.New("the caller has left")
)

// Unavailable wraps err in an [ErrUnavailable].
func Unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// An undecidedError is the error of a call whose context has ended before the store answered. A caller whose context
// ends in the queue gets the context's error instead, because the store has answered that there are no permits.
type undecidedError struct{ error }

// decided returns err, or an undecidedError if the caller has left. ctx is the caller's.
func decided(ctx context.Context, err error) error {
	if err != errCallerLeft { //nolint:errorlint // it is never wrapped
		return err
	}
	// The program's own type of context can close Done while Err is still nil.
	return &undecidedError{cmp.Or(ctxerr.Of(ctx), err)}
}

func (e *undecidedError) Unwrap() error { return e.error }

// Undecided returns true: the limiter took no decision before the caller's context ended.
func (e *undecidedError) Undecided() bool { return true }

// waitUntil returns nil when done is closed. Otherwise the state is that of a call whose caller waits no more, because gone was
// closed or the time is over.
func waitUntil(done, gone <-chan struct{}, limit time.Time) (state int32, err error) {
	timeout := time.NewTimer(time.Until(limit))
	defer timeout.Stop()
	select {
	case <-done:
		return answered, nil
	case <-gone:
		return left, errCallerLeft
	case <-timeout.C:
		return late, Unavailable(errTimeout)
	}
}

// giveBacks are what limiters are giving back to the store: refunds, blocks and releases of leases. No caller waits for
// them, and round trips can overtake each other. The rule: a call that has taken nothing, because it was rejected or only
// reads, is sent again when everything is answered that was given back for its key before it. So a caller finds what it has
// given back, and no other call waits.
type giveBacks struct {
	count atomic.Int64 // of all keys
	mu    sync.Mutex
	byKey map[limiterKey][]chan struct{} // closed when it is answered
}

type limiterKey struct{ name, key string }

func keyOf(q *Call) limiterKey { return limiterKey{q.Limiter.Name(), q.Key} }

// begin is called before q is sent.
func (g *giveBacks) begin(q *Call) {
	if q.Op != Release && (q.Op != Decide || q.Requests[0].Op != backend.OpRefund && q.Requests[0].Op != backend.OpReturnBlock) {
		return // it gives nothing back
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byKey == nil {
		g.byKey = map[limiterKey][]chan struct{}{}
	}
	of, done, onAnswer := keyOf(q), make(chan struct{}), q.OnAnswer
	g.byKey[of] = append(g.byKey[of], done)
	g.count.Add(1)
	q.OnAnswer = func() {
		onAnswer()
		close(done)
		g.mu.Lock()
		defer g.mu.Unlock()
		rest := slices.DeleteFunc(g.byKey[of], func(c chan struct{}) bool { return c == done })
		if g.byKey[of] = rest; len(rest) == 0 {
			delete(g.byKey, of)
		}
		g.count.Add(-1)
	}
}

// before returns channels that are closed when all is answered that is being given back for the key of q; none if q need not
// be sent again after it. A caller that waits for a lease need not ask again: the release wakes it.
func (g *giveBacks) before(q *Call) []chan struct{} {
	if g.count.Load() == 0 || q.Lease != nil && q.Lease.Waiting {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.byKey[keyOf(q)])
}
