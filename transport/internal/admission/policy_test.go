package admission_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/status"
)

var errStore = errors.New("the store is down")

// A decision is what became of a call.
type decision struct {
	cause  status.Cause
	never  bool
	ok     bool
	events []string // with the severity
}

// decide lets a policy decide about the request "user" in the Limits of the options.
func decide(ctx context.Context, o admission.Options, p policy) (d decision, rejection admission.Rejection) {
	o.Listener = pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
		d.events = append(d.events, fmt.Sprint(e.Severity, " ", e.Name))
	})
	l := transport.NewLimits(o)
	p.Name = "p"
	p = l.Prepare(new(problems), p)
	var c admission.Call[string]
	c.Begin(ctx, l, false)
	defer c.End()
	_, rejection, d.ok = c.Admit(ctx, &p, "user")
	d.cause, d.never = rejection.Cause, rejection.Never
	return d, rejection
}

const (
	rejected = "Error " + ratelimit.EventRejected
	ofAKey   = "Warning " + ratelimit.EventRejected
	shadowed = "Warning " + ratelimit.EventShadowRejected
	failed   = "Error " + admission.EventFailed
	open     = "Warning " + admission.EventFailedOpen
)

func TestCall_AdmitNamesTheCause(t *testing.T) {
	closed, empty, full := bucket(t, 1), bucket(t, 1), slots(t, 1)
	require.NoError(t, closed.Close())
	weir.Must(empty.TryAcquire(t.Context(), 1))
	weir.Must(full.TryAcquire(t.Context(), 1))
	perUser := weir.Must(admission.PerKey("test", limiter.FactoryFor[string](limiter.ConcurrencyOptions{PermitLimit: 1}),
		&limiter.PartitionedOptions{MaxPartitions: 1}))
	t.Cleanup(func() { _ = perUser.Close() })
	weir.Must(perUser.TryAcquire(t.Context(), "alice", 1))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	key := func(k string) admission.Limit[string] {
		return admission.ByKey(perUser, func(string) string { return k })
	}
	of, fails := admission.Of[string], admission.Of[string](script{err: errStore})
	costs := func(n int) func(string) int { return func(string) int { return n } }
	for name, c := range map[string]struct {
		ctx  context.Context
		p    policy
		want decision
	}{
		"granted":             {nil, policy{Limit: of(bucket(t, 1))}, decision{ok: true}},
		"a quota":             {nil, policy{Limit: of(empty), FailOpen: true}, decision{cause: status.OverQuota, events: []string{rejected}}},
		"capacity":            {nil, policy{Limit: of(full), FailOpen: true}, decision{cause: status.OverCapacity, events: []string{rejected}}},
		"capacity in a chain": {nil, policy{Limit: of(weir.Must(limiter.Chain(bucket(t, 5), full)))}, decision{cause: status.OverCapacity, events: []string{rejected}}},
		"the share of a key":  {nil, policy{Limit: key("alice")}, decision{cause: status.OverQuota, events: []string{ofAKey}}},
		"a key too many":      {nil, policy{Limit: key("bob"), FailOpen: true}, decision{cause: status.OverCapacity, events: []string{ofAKey}}},
		"an ambiguous key":    {nil, policy{Limit: key(admission.AmbiguousKey), FailOpen: true}, decision{cause: status.Ambiguous, events: []string{ofAKey}}},
		"ambiguous, shadow":   {nil, policy{Limit: key(admission.AmbiguousKey), Shadow: true}, decision{ok: true, events: []string{shadowed}}},
		"too much":            {nil, policy{Limit: of(full), Cost: costs(2), FailOpen: true}, decision{cause: status.OverQuota, never: true, events: []string{failed}}},
		"too much for a key":  {nil, policy{Limit: key("alice"), Cost: costs(2)}, decision{cause: status.OverQuota, never: true, events: []string{failed}}},
		"a negative cost":     {nil, policy{Limit: of(full), Cost: costs(-1)}, decision{cause: status.Failed, events: []string{failed}}},
		"closed":              {nil, policy{Limit: of(closed)}, decision{cause: status.Undecided, events: []string{failed}}},
		"closed, fail open":   {nil, policy{Limit: of(script{reason: limiter.ReasonClosed}), FailOpen: true}, decision{ok: true, events: []string{open}}},
		"away":                {nil, policy{Limit: of(script{reason: limiter.ReasonUnavailable})}, decision{cause: status.Undecided, events: []string{rejected}}},
		"away, fail open":     {nil, policy{Limit: of(script{reason: limiter.ReasonUnavailable}), FailOpen: true}, decision{ok: true, events: []string{open}}},
		"failed":              {nil, policy{Limit: fails}, decision{cause: status.Undecided, events: []string{failed}}},
		"failed, fail open":   {nil, policy{Limit: fails, FailOpen: true}, decision{cause: status.Undecided, ok: true, events: []string{open}}},
		"failed, shadow":      {nil, policy{Limit: fails, Shadow: true}, decision{cause: status.Undecided, ok: true, events: []string{"Warning " + ratelimit.EventShadowError}}},
		"shadow":              {nil, policy{Limit: of(full), Shadow: true}, decision{ok: true, events: []string{shadowed}}},
		"the client has gone": {gone, policy{Limit: of(bucket(t, 1)), FailOpen: true}, decision{cause: status.Gone}},
		"its deadline":        {late, policy{Limit: of(bucket(t, 1))}, decision{cause: status.Late}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			got, _ := decide(ctx, admission.Options{}, c.p)
			assert.Equal(t, c.want, got)
			if !c.want.ok {
				c.p.Shadow = false
				got, _ = decide(ctx, admission.Options{Shadow: true}, c.p)
				assert.Equal(t, c.ctx == nil, got.ok, "all policies are shadows, but a client that has gone is gone")
			}
		})
	}
}

// A limiter that has not decided within MaxWait has not rejected the call. A shadow waits for nothing.
func TestPolicy_MaxWait(t *testing.T) {
	hangs := func(err error) admission.Limit[string] {
		return admission.ByRequest[string](hanging{err: err})
	}
	for name, c := range map[string]struct {
		p    policy
		took time.Duration
		want decision
	}{
		"in the queue":      {policy{Limit: hangs(context.DeadlineExceeded), MaxWait: time.Second, FailOpen: true}, time.Second, decision{cause: status.OverQuota, events: []string{ofAKey}}},
		"its cause":         {policy{Limit: hangs(fmt.Errorf("it: %w", context.DeadlineExceeded)), MaxWait: time.Second, FailOpen: true}, time.Second, decision{cause: status.OverQuota, events: []string{ofAKey}}},
		"another error":     {policy{Limit: hangs(errStore), MaxWait: time.Second, FailOpen: true}, time.Second, decision{cause: status.Undecided, ok: true, events: []string{open}}},
		"no answer yet":     {policy{Limit: hangs(unanswered{context.DeadlineExceeded}), MaxWait: time.Second, FailOpen: true}, time.Second, decision{cause: status.Undecided, ok: true, events: []string{open}}},
		"no answer, closed": {policy{Limit: hangs(unanswered{context.DeadlineExceeded}), MaxWait: time.Second}, time.Second, decision{cause: status.Undecided, events: []string{failed}}},
		"without a bound":   {policy{Limit: hangs(nil)}, time.Hour, decision{cause: status.Late}},
		"not at all":        {policy{Limit: hangs(nil), MaxWait: -1}, 0, decision{cause: status.OverQuota, events: []string{ofAKey}}},
		"a shadow":          {policy{Limit: hangs(nil), Shadow: true}, 0, decision{ok: true, events: []string{shadowed}}},
		"a shadow, bounded": {policy{Limit: hangs(nil), Shadow: true, MaxWait: time.Second}, 0, decision{ok: true, events: []string{shadowed}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				got, rejection := decide(ctx, admission.Options{}, c.p)
				assert.Equal(t, c.want, got)
				assert.Equal(t, c.took, time.Since(began))
				if name == "in the queue" {
					assert.Equal(t, "waited too long", rejection.Lease.Reason())
				}
			})
		})
	}
	// A limiter that all clients share is what it was before the wait: a quota, or capacity.
	for cause, make := range map[status.Cause]func() (limiter.Limiter, error){
		status.OverQuota: func() (limiter.Limiter, error) {
			return limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour, QueueLimit: 1})
		},
		status.OverCapacity: func() (limiter.Limiter, error) {
			return limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := weir.Must(make())
			_, _ = l.TryAcquire(t.Context(), 1)
			got, _ := decide(t.Context(), admission.Options{}, policy{Limit: admission.Of[string](l), MaxWait: time.Second})
			assert.Equal(t, decision{cause: cause, events: []string{rejected}}, got)
		})
	}
}

// hanging is a limiter that answers Acquire with err when the context ends, and rejects everything at once.
type hanging struct {
	lease limiter.Lease // returned together with err
	err   error
}

func (h hanging) Acquire(ctx context.Context, _ string, _ int) (limiter.Lease, error) {
	<-ctx.Done()
	if h.err == nil {
		return limiter.Lease{}, ctx.Err()
	}
	return h.lease, h.err
}

func (h hanging) TryAcquire(context.Context, string, int) (limiter.Lease, error) {
	return limiter.Lease{}, nil
}

type unanswered struct{ error }

func (e unanswered) Unwrap() error   { return e.error }
func (e unanswered) Undecided() bool { return true }

// A store that is away decides by its own outage policy first.
func TestPolicy_StoreThatIsAway(t *testing.T) {
	limits := limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}
	for name, c := range map[string]struct {
		outage   store.OutagePolicy
		failOpen bool
		want     decision // about the second call
	}{
		"closed, fail open": {store.FailClosed, true, decision{ok: true, events: []string{open}}},
		"closed":            {store.FailClosed, false, decision{cause: status.Undecided, events: []string{rejected}}},
		"open":              {store.FailOpen, false, decision{ok: true}},
		"local, none left":  {store.FallBackLocally, true, decision{cause: status.OverQuota, events: []string{rejected}}},
	} {
		t.Run(name, func(t *testing.T) {
			memory := storetest.NewMemory()
			shared := weir.Must(store.New(memory, nil))
			t.Cleanup(func() { _ = shared.Close() })
			how := &store.LimiterOptions{Outage: c.outage}
			if c.outage == store.FallBackLocally {
				how.LocalShare = 1
			}
			l := weir.Must(shared.FixedWindow("whole", limits, how))
			memory.Fail(errors.New("connection refused"))
			p := policy{Limit: admission.Of[string](l), FailOpen: c.failOpen}
			decide(t.Context(), admission.Options{}, p)
			got, _ := decide(t.Context(), admission.Options{}, p)
			assert.Equal(t, c.want, got)
		})
	}
	// While a store hangs, and is not yet known to be away, FailOpen and Shadow admit what it does not answer within MaxWait.
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "lent": {Block: 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := storetest.NewMemory()
				shared := weir.Must(store.New(memory, nil))
				l := weir.Must(shared.TokenBucket("b", limiter.TokenBucketOptions{TokenLimit: 1000, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: 10}, how))
				memory.Stall(true)
				for i := range 100 {
					began := time.Now()
					got, _ := decide(t.Context(), admission.Options{}, policy{
						Limit: admission.Of[string](l), MaxWait: 50 * time.Millisecond, FailOpen: i%2 == 0, Shadow: i%2 == 1,
					})
					require.True(t, got.ok)
					require.LessOrEqual(t, time.Since(began), 50*time.Millisecond)
				}
				assert.Error(t, shared.Health().Err, "it has been noticed meanwhile")
				memory.Stall(false)
				require.NoError(t, shared.Close())
			})
		})
	}
}

// A Listener gets the measurements of a call whole or not at all, and the error that the program needs.
func TestLimits_Listener(t *testing.T) {
	var got []string
	enabled := true
	measured := func(_ context.Context, e pipeline.Event) {
		got = append(got, fmt.Sprint(e.Source.Pipeline, " ", e.Source.Strategy, " ", e.Name, " ", e.Err != nil))
	}
	l := transport.NewLimits(admission.Options{Name: "shop", Listener: listener{
		OnEvent: func(ctx context.Context, e pipeline.Event) {
			assert.Equal(t, e.Name != admission.EventFailedOpen && e.Name != ratelimit.EventShadowRejected, pipeline.NotCalled(e.Err), e.Name)
			measured(ctx, e)
		},
		OnMeasurement: func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
			measured(ctx, e)
			return measured
		},
		Enabled: func(context.Context) bool { return enabled },
	}})
	prepare := func(name string, p policy) *policy {
		p.Name = name
		p = l.Prepare(new(problems), p)
		return &p
	}
	first := prepare("first", policy{Limit: admission.Of[string](bucket(t, 10))})
	run := func(p *policy) []string {
		got = nil
		var c admission.Call[string]
		c.Begin(t.Context(), l, false)
		for _, p := range []*policy{first, p} {
			if _, _, ok := c.Admit(t.Context(), p, "r"); !ok {
				break
			}
		}
		enabled = true // after a call has begun without, this comes too late
		c.End()
		return got
	}
	const request, lease = " RateLimiterRequest ", " RateLimiterLease false"
	for event, p := range map[string]*policy{
		"":                                      prepare("p", policy{Limit: admission.Of[string](bucket(t, 1))}),
		ratelimit.EventRejected + " true":       prepare("p", policy{Limit: admission.Of[string](script{})}),
		ratelimit.EventShadowRejected + " true": prepare("p", policy{Limit: admission.Of[string](script{}), Shadow: true}),
		admission.EventFailedOpen + " true":     prepare("p", policy{Limit: admission.Of[string](script{reason: limiter.ReasonClosed}), FailOpen: true}),
	} {
		want := []string{"shop first" + request + "false", "shop p" + request + fmt.Sprint(event != "")}
		if event != "" {
			want = append(want, "shop p "+event)
		} else {
			want = append(want, "shop p"+lease)
		}
		assert.Equal(t, append(want, "shop first"+lease), run(p), event)
	}
	enabled = false
	assert.Empty(t, run(prepare("p", policy{Limit: admission.Of[string](script{})})))
}

type listener pipeline.Hooks

func (l listener) Hooks() pipeline.Hooks { return pipeline.Hooks(l) }
