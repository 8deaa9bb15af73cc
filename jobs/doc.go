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
//		err = throttler.Set(ctx, jobs.Definition{FixedWindow: "carrier", Limit: 5000, Interval: time.Hour})
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
// Most callers need only these: [Migrate] and [New] when the program starts, [Throttler.Set] for the limiters,
// [Declare] with [Throttled] for what jobs need of them, and [Throttler.Plugin] for the River client. Of the packages beside
// this one, jobsconfig reads limiters and throttles from a file, jobsmetrics makes OpenTelemetry metrics, and jobsdashboard
// shows limiters on a dashboard.
//
// A job that does not get all its limits holds none. It is snoozed, which costs no attempt, until its turn is near. A
// job that cannot be throttled as it is declared fails; it never runs unthrottled. The page docs/jobs.md says what is
// guaranteed and what is not.
//
// # Zero values
//
// The zero [Throttle] has no limits. The zero [Options] have the defaults, and nil stands for them. The zero [Mode] is
// [AcquireAndRelease]. The zero [Config] sets nothing. The zero [Limit] is invalid. The zero [Throttler] and [Declaration]
// are not usable: [New] and [Declare] make them.
//
// # For maintainers
//
// The files, in the order in which a job passes through them:
//
//   - plugin.go is the seam with River: a middleware begins and ends the session of a run, and a hook requests the limits
//     before the work begins. session.go has the session, and the renewer of leases.
//   - batcher.go collects the requests and releases of a process, for one transaction after the other.
//     Requests of jobs that wait in their workers are kept there.
//   - database.go runs such a transaction. It locks the keys in the order of their IDs, reads holders and waiters into a
//     batch (batch.go), and writes what was decided.
//   - decide.go decides, without a database and without a clock: each request gets all its needs or none. The state of
//     limiters is in slots.go and in package internal/window.
//   - maintenance.go has the janitor, which looks after waiters that no transaction brings back, and cleans up.
//   - throttle.go, template.go, definition.go and config.go check what programs and files declare. request.go makes a request of
//     that for a job. define.go and inspect.go change and list limiters.
//   - The folder statements has the SQL, and in conditions.sql the rule when a slot is held (live): it follows from the row
//     of the job in river_job.
package jobs
