// Package jobs throttles background jobs that run on River (github.com/riverqueue/river) with PostgreSQL: how many run at
// the same time and how many begin in an interval, over all processes.
//
// Here two jobs of one order never run at the same time, and at most 5000 begin in an hour:
//
//	type ShipArgs struct {
//		Order int `json:"order"`
//	}
//
//	func (ShipArgs) Kind() string { return "ship" }
//
//	type ShipWorker struct{ river.WorkerDefaults[ShipArgs] }
//
//	func (*ShipWorker) Work(ctx context.Context, job *river.Job[ShipArgs]) error { … }
//
//	var shipping = weir.Must(jobs.Declare(jobs.Throttle{Limits: []jobs.Limit{
//		{Mutex: "orders", Key: "{order}"},
//		{FixedWindow: "carrier"},
//	}}))
//
//	func run(ctx context.Context, pool *pgxpool.Pool) error {
//		if err := jobs.Migrate(ctx, pool, ""); err != nil {
//			return err
//		}
//		throttler, err := jobs.New(ctx, pool, nil)
//		if err != nil {
//			return err
//		}
//		defer throttler.Close()
//		err = throttler.SetFixedWindow(ctx, "carrier", jobs.FixedWindowOptions{Limit: 5000, Interval: time.Hour})
//		if err != nil {
//			return err
//		}
//
//		workers := river.NewWorkers()
//		river.AddWorker(workers, jobs.Throttled(&ShipWorker{}, shipping))
//		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
//			Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
//			Workers: workers,
//			Plugins: []rivertype.Plugin{throttler.Plugin()},
//		})
//		if err != nil {
//			return err
//		}
//		if err := client.Start(ctx); err != nil {
//			return err
//		}
//		<-client.Stopped()
//		return nil
//	}
//
// Most callers need no more than this: [Migrate] and [New] when the program starts, [Declare] with [Throttled] for
// what their jobs need, the methods of [Throttler] that begin with Set for how much there is of it, and
// [Throttler.Plugin] for the River client. [ParseConfig] reads limiters and throttles from a file instead.
//
// A job that does not get all its limits holds none and leaves its worker. It is snoozed, which costs no attempt, until
// it has a chance. A job that cannot be throttled as it is declared fails and says why; it never runs unthrottled. The
// page docs/jobs.md says what is guaranteed and what is not.
//
// # Zero values
//
// The zero [Throttle] has no limits. The zero [Options] have the defaults, and nil stands for them. The zero [Mode] is
// [AcquireAndRelease]. The zero [Action] of a Throttle is that of the Options, and the zero Action of the Options is
// [Snooze]. The zero [Config] sets nothing. A zero [Limit] is an error. The zero values of [Throttler] and [Declaration] are
// not usable: [New] and [Declare] make them.
//
// # For maintainers
//
// Five files, in the order in which a job goes through them:
//
//   - plugin.go is the seam with River. A middleware collects what a run has declared, and releases at its end; a hook asks
//     before the work begins.
//   - batcher.go collects what the jobs of a process ask and release, for one transaction after the other. Jobs that wait
//     in their workers are there.
//   - batch.go is such a transaction. It locks the keys in the order of their numbers, reads what is held and who waits
//     (batchread.go), and writes what was decided (batchwrite.go).
//   - decide.go decides, without a database and without a clock: all needs of a job or none. The limiters are in slots.go,
//     window.go and dynamic.go.
//   - sql.go has the statements, and the rule when a slot is held (live): it follows from the row of the job in
//     river_job.
package jobs
