package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
)

// Bursts of two, and 1 a minute in the long run.
func ExampleTokenBucket() {
	ctx := context.Background()
	l := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit:          2,
		TokensPerPeriod:     1,
		ReplenishmentPeriod: time.Minute,
	}))
	for range 3 {
		lease, err := l.TryAcquire(ctx, 1)
		if err != nil {
			panic(err)
		}
		if lease.Acquired() {
			fmt.Println("go ahead")
			continue
		}
		after, _ := lease.RetryAfter()
		fmt.Println("come back in", after.Round(time.Second))
	}

	// Output:
	// go ahead
	// go ahead
	// come back in 1m0s
}

// One at a time, and one more may wait for it.
func ExampleConcurrency() {
	ctx := context.Background()
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))

	first, err := l.Acquire(ctx, 1)
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		second, err := l.Acquire(ctx, 1) // waits for the first
		if err != nil {
			panic(err)
		}
		defer second.Release()
		fmt.Println("the second works:", second.Acquired())
	}()
	fmt.Println("the first works")
	first.Release()
	<-done

	// Output:
	// the first works
	// the second works: true
}

// The window is full again all at once, when the next one begins.
func ExampleFixedWindow() {
	ctx := context.Background()
	l := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Hour}))

	lease, _ := l.TryAcquire(ctx, 90) // permits can stand for anything: rows, bytes, cents
	fmt.Println(lease.Acquired())
	lease, _ = l.TryAcquire(ctx, 20)
	fmt.Println(lease.Acquired())
	_, err := l.TryAcquire(ctx, 101)
	fmt.Println(err)

	// Output:
	// true
	// false
	// limiter: permit count out of range: 101 is above the limit of 100
}

// No more than 10 in any hour, whenever it begins, to within 5 minutes.
func ExampleSlidingWindow() {
	ctx := context.Background()
	l := weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{
		PermitLimit:       10,
		Window:            time.Hour,
		SegmentsPerWindow: 12,
	}))
	if _, err := l.TryAcquire(ctx, 7); err != nil {
		panic(err)
	}
	lease, err := l.TryAcquire(ctx, 4)
	if err != nil {
		panic(err)
	}
	after, _ := lease.RetryAfter() // when the seven leave the window
	fmt.Println(lease.Acquired(), after.Round(time.Minute))
	fmt.Println(l.Statistics().AvailablePermits, "left")

	// Output:
	// false 1h0m0s
	// 3 left
}

func ExampleCalendar() {
	quota, err := limiter.NewCalendar(limiter.CalendarOptions{PermitLimit: 10_000, Every: rate.Month, Zone: "Europe/Berlin"})
	if err != nil {
		panic(err)
	}
	lease, _ := quota.TryAcquire(context.Background(), 2_500)
	fmt.Println(quota.Limits())
	fmt.Println(lease, "and", quota.Statistics().AvailablePermits, "are left")

	// Output:
	// calendar: 10000 each month, in Europe/Berlin; no queue
	// granted 2500 permits and 7500 are left
}

// Each customer has a billing month of its own. The limiter of a customer is made with the first request.
func ExampleCalendar_billingMonths() {
	contracts := map[string]time.Time{
		"ada": time.Date(2024, time.January, 31, 0, 0, 0, 0, time.UTC),
		"bob": time.Date(2025, time.June, 15, 0, 0, 0, 0, time.UTC),
	}
	quotaOf := func(customer string) (limiter.Limiter, error) {
		begins := contracts[customer].Day() // of ada's: the last day of shorter months
		return limiter.NewCalendar(limiter.CalendarOptions{PermitLimit: 1_000, Every: rate.MonthFrom(begins), Zone: "Europe/Berlin"})
	}
	quotas, err := limiter.NewPartitionedByKey(func(customer string) string { return customer }, quotaOf, nil)
	if err != nil {
		panic(err)
	}
	defer quotas.Close()
	for _, customer := range []string{"ada", "bob"} {
		lease, _ := quotas.TryAcquire(context.Background(), customer, 1)
		limits, _ := quotas.Limits(customer)
		fmt.Printf("%s: %v; %v\n", customer, lease, limits)
	}

	// Output:
	// ada: granted 1 permit; calendar: 1000 each month from 31, in Europe/Berlin; no queue
	// bob: granted 1 permit; calendar: 1000 each month from 15, in Europe/Berlin; no queue
}

// A call that the second limiter rejects costs nothing at the first.
func ExampleChain() {
	ctx := context.Background()
	hourly := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Hour}))
	atOnce := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	both := weir.Must(limiter.Chain(hourly, atOnce))

	lease, _ := both.TryAcquire(ctx, 1)
	fmt.Println(lease.Acquired(), hourly.Statistics().AvailablePermits)
	rejected, _ := both.TryAcquire(ctx, 1)
	fmt.Println(rejected.Acquired(), hourly.Statistics().AvailablePermits)
	lease.Release()
	fmt.Println(atOnce.Statistics().AvailablePermits, hourly.Statistics().AvailablePermits)

	// Output:
	// true 99
	// false 99
	// 1 99
}

// A call may use 1,000 tokens of a language model each hour. How many it has used is known when it is done.
func ExampleLease_Adjust() {
	ctx := context.Background()
	tokens := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1000, Window: time.Hour}))

	lease, _ := tokens.TryAcquire(ctx, 300) // an estimate
	lease, _ = lease.Adjust(250)            // it was less
	fmt.Println(lease.Permits(), tokens.Statistics().AvailablePermits)

	lease, _ = tokens.TryAcquire(ctx, 700)
	lease, _ = lease.Adjust(800) // more than there was: the rest of the hour has nothing
	fmt.Println(lease.Permits(), tokens.Statistics().AvailablePermits)

	// Output:
	// 250 750
	// 800 0
}

// The work cannot begin after all, so the permits of the window go back.
func ExampleLease_Refund() {
	ctx := context.Background()
	l := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 100, Window: time.Hour}))

	lease, _ := l.TryAcquire(ctx, 30)
	fmt.Println(l.Statistics().AvailablePermits)
	lease.Refund()
	fmt.Println(l.Statistics().AvailablePermits, l.Statistics().SuccessfulLeases)

	// Output:
	// 70
	// 100 0
}

// One bucket for each user, and no more than two users' buckets at a time.
func ExampleNewPartitioned() {
	type request struct{ user string }
	ctx := context.Background()
	bucket := limiter.FactoryFor[string](limiter.TokenBucketOptions{
		TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	})
	l, err := limiter.NewPartitioned(func(r request) limiter.Partition[string] {
		return limiter.Partition[string]{Key: r.user, New: bucket}
	}, &limiter.PartitionedOptions{MaxPartitions: 2})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	for _, user := range []string{"ann", "ann", "bob", "eve"} {
		lease, err := l.TryAcquire(ctx, request{user}, 1)
		if err != nil {
			panic(err)
		}
		after, _ := lease.RetryAfter()
		fmt.Printf("%s: %v %v %q\n", user, lease.Acquired(), after.Round(time.Minute), lease.Reason())
	}

	// Output:
	// ann: true 0s ""
	// ann: false 1h0m0s ""
	// bob: true 0s ""
	// eve: false 0s "partition limit reached"
}

// What would happen to a user, without doing it.
func ExamplePartitionedLimiter_PeekKey() {
	ctx := context.Background()
	perUser := weir.Must(limiter.NewPartitionedByKey(
		func(user string) string { return user },
		limiter.FactoryFor[string](limiter.PerMinute(1, 2)),
		nil,
	))
	defer perUser.Close()

	if _, err := perUser.TryAcquire(ctx, "ann", 1); err != nil {
		panic(err)
	}
	for _, n := range []int{1, 2} {
		lease, err := perUser.PeekKey(ctx, "ann", n)
		if err != nil {
			panic(err)
		}
		after, _ := lease.RetryAfter()
		fmt.Println(n, lease.Acquired(), after.Round(time.Second))
	}
	lease := weir.Must(perUser.PeekKey(ctx, "bob", 2))
	fmt.Println("bob", lease.Acquired(), perUser.Len(), "partition")

	// Output:
	// 1 true 0s
	// 2 false 1m0s
	// bob true 1 partition
}

// The users that are limited most.
func ExamplePartitionedLimiter_TopRejected() {
	ctx := context.Background()
	factory := limiter.FactoryFor[string](limiter.PerMinute(1, 1))
	perUser := weir.Must(limiter.NewPartitioned(func(user string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: user, New: factory}
	}, nil))
	defer perUser.Close()

	perUser.TopRejected(0) // begins to count
	for _, user := range []string{"ann", "bob", "bob", "bob", "ann", "cy"} {
		if _, err := perUser.TryAcquire(ctx, user, 1); err != nil {
			panic(err)
		}
	}
	for _, top := range perUser.TopRejected(10) {
		fmt.Println(top.Key, top.Rejections)
	}

	// Output:
	// bob 2
	// ann 1
}

// A limiter by user, used where there are orders.
func ExampleTranslate() {
	type order struct {
		id   int
		user string
	}
	ctx := context.Background()
	window := limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour})
	users, err := limiter.NewPartitioned(func(user string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: user, New: window}
	}, nil)
	if err != nil {
		panic(err)
	}
	defer users.Close()
	orders := limiter.Translate(users, func(o order) string { return o.user })

	for _, o := range []order{{1, "ann"}, {2, "ann"}, {3, "bob"}} {
		lease, err := orders.TryAcquire(ctx, o, 1)
		if err != nil {
			panic(err)
		}
		fmt.Println("order", o.id, lease.Acquired())
	}

	// Output:
	// order 1 true
	// order 2 false
	// order 3 true
}

// Every tenant has a limit, and all of them share another.
func ExampleChainPartitioned() {
	ctx := context.Background()
	atOnce := func(limit int) limiter.Factory[string] {
		return limiter.FactoryFor[string](limiter.ConcurrencyOptions{PermitLimit: limit})
	}
	two, three := atOnce(2), atOnce(3)
	tenants, _ := limiter.NewPartitioned(func(tenant string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: tenant, New: two}
	}, nil)
	defer tenants.Close()
	total, _ := limiter.NewPartitioned(func(string) limiter.Partition[string] {
		return limiter.Partition[string]{New: three}
	}, nil)
	defer total.Close()

	both, err := limiter.ChainPartitioned(tenants, total)
	if err != nil {
		panic(err)
	}
	for _, tenant := range []string{"ann", "ann", "ann", "bob", "bob"} {
		lease, err := both.TryAcquire(ctx, tenant, 1)
		if err != nil {
			panic(err)
		}
		fmt.Println(tenant, lease.Acquired())
	}

	// Output:
	// ann true
	// ann true
	// ann false
	// bob true
	// bob false
}

// New limits do not forget what was taken.
func ExampleTokenBucket_Reconfigure() {
	ctx := context.Background()
	o := limiter.TokenBucketOptions{TokenLimit: 100, TokensPerPeriod: 10, ReplenishmentPeriod: time.Hour}
	l := weir.Must(limiter.NewTokenBucket(o))
	if _, err := l.TryAcquire(ctx, 60); err != nil {
		panic(err)
	}
	for _, limit := range []int{80, 50, 200} {
		o.TokenLimit = limit
		if err := l.Reconfigure(o); err != nil {
			panic(err)
		}
		fmt.Println(limit, "in all,", l.Statistics().AvailablePermits, "left")
	}

	// Output:
	// 80 in all, 20 left
	// 50 in all, 0 left
	// 200 in all, 140 left
}

// What else a limiter of one's own has to say travels on the lease. Keys are
// package variables, exported where callers are to read them.
func ExampleMetadataKey() {
	var shardKey = limiter.NewMetadataKey[string]("SHARD")

	answer := func() limiter.Lease { // of a limiter
		return shardKey.With(custom.Rejected(time.Minute, "shard is moving"), "eu-7")
	}
	lease := answer()
	shard, ok := shardKey.From(lease)
	fmt.Println(shard, ok)
	for name, value := range lease.Metadata() {
		fmt.Println(name, "=", value)
	}

	// Output:
	// eu-7 true
	// SHARD = eu-7
	// REASON_PHRASE = shard is moving
	// RETRY_AFTER = 1m0s
}

// A pool of workers that share a limit. Each waits for its permit, also while the
// limiter rejects because its queue is full or its store is away.
func ExampleWait() {
	l := weir.Must(limiter.NewTokenBucket(limiter.PerSecond(1000, 10)))
	jobs := make(chan int)
	var done atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range jobs {
				lease, err := limiter.Wait(context.Background(), l, 1)
				if err != nil {
					return // the context ended, or the limiter is closed
				}
				done.Add(1)
				lease.Release()
			}
		})
	}
	for job := range 20 {
		jobs <- job
	}
	close(jobs)
	workers.Wait()
	fmt.Println(done.Load(), "jobs done")
	// Output: 20 jobs done
}

// A request is admitted by an estimate, and what it has cost becomes known later, when there is no lease to adjust.
func ExampleCharger() {
	tokens := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1000, Window: time.Minute}))
	defer tokens.Close()
	ctx := context.Background()
	lease, _ := tokens.TryAcquire(ctx, 100)
	fmt.Println("admitted:", lease.Acquired())

	level, _ := tokens.Charge(ctx, 1100) // the work took 1200
	fmt.Println("remaining:", level.Remaining)
	lease, _ = tokens.TryAcquire(ctx, 1)
	fmt.Println("admitted:", lease.Acquired())

	level, _ = tokens.Charge(ctx, -500) // 500 of them were charged by mistake
	fmt.Println("remaining:", level.Remaining)
	// Output:
	// admitted: true
	// remaining: -200
	// admitted: false
	// remaining: 300
}
