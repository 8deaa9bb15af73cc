package jobs

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

// A querier is a *pgxpool.Pool, a *pgxpool.Conn or a pgx.Tx.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// query runs a statement and passes its rows to f, which comes from eachRow or appendRows.
func query(ctx context.Context, db querier, f func(pgx.Rows) error, sql string, args ...any) error {
	rows, _ := db.Query(ctx, sql, args...) // the rows return the error, too
	return f(rows)
}

// eachRow returns a function that scans each row into to, and then calls f.
func eachRow(f func(), to ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, to, func() error { f(); return nil })
		return err
	}
}

// appendRows returns a function that appends each row to *to. The columns are the fields of T, in order.
func appendRows[T any](to *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*to, err = pgx.AppendRows(*to, rows, pgx.RowToStructByPos[T])
		return err
	}
}

// statements are the texts of all SQL statements, for given schemas of weir and River.
type statements struct {
	replace func(string) string // puts the schemas in place

	// database.resolve
	mutexes, keys, ids string
	// database.load
	settings, lock, lockWindows, released, dynamic, clock, overdue, ownHolders, holders, running, waitersOfJobs, waiters, fence string
	// database.save
	saveKeys, removeHolders, saveHolders, takeOver, removeWaiters, saveWaiters string
	// database.bringBack
	bringBack, finishedWaiters string
	// maintenance
	bringBackLate, bringBackOutdated, stalled, unclaimed, claim, handOn, renewLeases, removeFinishedWaiters, removeDeadHolders, lockExpiredKeys, removeExpiredKeys string
	// New, and what sets and removes limiters
	checkTables, version, setLimiter, extendExpiry, unknown, lockLimiter, lockKeys, usedBy, remove, releaseOwner string
	// Inspect and the lists
	listLimiters, listKeys, oneLimiter, oneKey, allKeys, allWaiters, listHolders, countOwners, listWaiters string
}

// settings are those of a batch's transaction. They force plans that find rows by their keys, because for a table that is
// small, or was when it was last analyzed, the planner chooses to read all of it. Plans are made once for a connection.
const settings = `select set_config('idle_in_transaction_session_timeout', '5000', true), set_config('lock_timeout', '5000', true),
	set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('enable_material', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// live is the condition under which a row h of jobs_holders counts, with the row j of its job.
//
// held is the same for batches, without leases: before a batch reads the holders of a key that may be full, it has
// removed the rows whose lease was over. A row whose lease has ended since then may be renewed at this moment, and
// counts. A deadline is never renewed, so held looks at it.
const (
	held = `case h.mode when 0 then j.id is not null and j.state = 'running' and j.attempted_at = h.attempted
		when 1 then j.id is not null and j.finalized_at is null else h.until is null or h.until > clock_timestamp() end`
	live = `(` + held + ` and (h.mode = 1 or h.until is null or h.until > clock_timestamp()))`
)

// moved are the waiters of windows that get another reserved place. Where a job is absent, the places of its window are
// handed out again in order: first to jobs that come, then to absent ones. So the number of places that are reserved in a
// bucket does not change, and a job that comes never waits behind one that does not.
//
// A job is absent if it has ended, or if River has not run it within a grace period after its time. While a queue is paused,
// or all its workers are busy, its other jobs are absent, too. A place is handed out only if River has the time to bring a job
// back for it. Jobs without a place, because it would have been too far ahead, are last. A job whose time is not that of its
// place, or that must not be brought back yet, keeps its place. The number of jobs is bounded, so that batches do not wait for
// long.
const (
	moved = `missing as materialized (select distinct w.key, case when not GONE then j.queue end as queue
			from "weir".jobs_waiters w WINDOW left join JOB on true where w.bucket <= MICROS and ($1::bigint[] is null or w.key = any($1))
			and (GONE or IDLE and j.scheduled_at <= now() - make_interval(secs => least(greatest(width / 120000000.0, 2), 30)))),
		places as materialized (select w.key, w.job, w.bucket, GONE or queue_is_missing as absent
			from (select distinct key from missing) m join "weir".jobs_waiters w on w.key = m.key WINDOW left join JOB on true
			cross join lateral (select exists (select from missing q where q.key = w.key and q.queue = j.queue) as queue_is_missing) q
			where (w.bucket is null or w.bucket + width > MICROS + 1000000) and (GONE or IDLE and (queue_is_missing
				or j.scheduled_at > now() + interval '1 second' and w.earliest <= now()
				and (w.bucket is null or w.wake <= to_timestamp(w.bucket / 1000000.0))))),
		soonest as (select * from (select p.*, row_number() over (partition by key, absent order by bucket, job) as n from places p) p where n <= 2000),
		numbered as materialized (select key, job, absent, bucket, row_number() over (partition by key order by bucket, job) as place,
			row_number() over (partition by key order by absent, bucket, job) as turn from soonest),
		moved as materialized (select n.key, n.job, n.absent, p.bucket from numbered n
			join numbered p on p.key = n.key and p.place = n.turn where p.bucket is distinct from n.bucket)`
	gone   = `(j.id is null or j.finalized_at is not null)`
	idle   = `j.state in ('available', 'scheduled')`
	micros = `(extract(epoch from now()) * 1000000)::bigint`
	// width is the length of the buckets of the window w.key, in µs.
	width = `join "weir".jobs_keys k on k.id = w.key join "weir".jobs_limiters l on l.id = k.limiter
			cross join lateral (select (l.options->>'interval')::bigint / 1000 / greatest((l.options->>'buckets')::bigint, 1) as width) b`
	// For each row, so that the planner does not choose to read all jobs.
	jobOfWaiter = `lateral (select j.id, j.state, j.scheduled_at, j.finalized_at, j.queue from RIVER j where j.id = w.job offset 0) j`
)

func newStatements(schema, riverSchema string) *statements {
	river := "river_job"
	if riverSchema != "" {
		river = `"` + riverSchema + `".river_job`
	}
	// In one pass: the name of a schema may be one of these words.
	places := strings.NewReplacer("LIVE", live, "HELD", held, `"`+pgmigrate.DefaultSchema+`"`, `"`+schema+`"`, "RIVER", river)
	s := places.Replace
	moved := strings.NewReplacer("GONE", gone, "IDLE", idle, "MICROS", micros, "WINDOW", width, "JOB", jobOfWaiter).Replace(moved)
	return &statements{
		replace: s,

		mutexes: s(`insert into "weir".jobs_limiters (type, name, options) select 'mutex', n, '{}' from unnest($1::text[]) n order by n
			on conflict do nothing`),
		keys: s(`insert into "weir".jobs_keys (limiter, key, expires)
			select l.id, q.key, clock_timestamp() + interval '1 day' from unnest($1::text[], $2::text[], $3::text[]) q (type, name, key)
			join "weir".jobs_limiters l on l.type = q.type and l.name = q.name order by 1, 2 on conflict do nothing`),
		ids: s(`select q.place, k.id from unnest($1::text[], $2::text[], $3::text[]) with ordinality q (type, name, key, place)
			join "weir".jobs_limiters l on l.type = q.type and l.name = q.name
			join "weir".jobs_keys k on k.limiter = l.id and k.key = q.key`),

		settings: settings,
		lock: s(`select k.id, l.id, l.type, l.version, l.options::text, k.key, k.state, k.hold, k.waiting
			from "weir".jobs_keys k join "weir".jobs_limiters l on l.id = k.limiter where k.id = any($1) order by k.id for update of k`),
		lockWindows: s(`select from "weir".jobs_keys where id = any($1) order by id for update`),
		released: s(`delete from "weir".jobs_holders d using (
			select h.key, h.owner, h.job from unnest($1::bigint[], $2::timestamptz[]) q (job, attempted)
			join "weir".jobs_holders h on h.job = q.job and h.attempted = q.attempted where h.mode = 0 for update of h skip locked) e
			where d.key = e.key and d.owner = e.owner and d.job = e.job
			returning d.key, d.owner, (extract(epoch from clock_timestamp() - d.acquired) * 1000000)::bigint,
				exists (select from "weir".jobs_waiters w where w.key = d.key)`),
		dynamic: s(`select k.id, k.limiter, k.key, k.state, k.waiting from "weir".jobs_keys k
			where k.limiter = any(array(select r.limiter from "weir".jobs_keys r where r.id = any($1))) and (k.state <> '' or k.id = any($2))`),
		clock: `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`,
		// Under the same condition as in holders. If a row is being renewed, the statement waits for that and leaves
		// the row.
		overdue: s(`delete from "weir".jobs_holders d using unnest($1::bigint[], $2::bigint[]) q (key, enough),
				"weir".jobs_keys k, "weir".jobs_limiters l
			where k.id = q.key and l.id = k.limiter and d.key = q.key and d.mode <> 1 and d.until <= clock_timestamp()
			and (select count(*) from "weir".jobs_holders c where c.key = q.key) + $3 >= least(q.enough, coalesce((l.options->>'max_count')::bigint, 1))`),
		ownHolders: s(`select h.key, h.owner, h.job, h.mode, HELD, (extract(epoch from h.acquired) * 1000000)::bigint, 0::bigint
			from unnest($1::bigint[], $2::text[]) q (key, owner)
			cross join lateral (select * from "weir".jobs_holders h where h.key = q.key and h.owner = q.owner offset 0) h
			left join RIVER j on j.id = h.job`),
		// For each key the number of its rows, as a row with mode -1. Then the rows themselves, but only for keys that
		// could become full if all requests were granted, and for keys with more rows than enough, so that the rows
		// that no longer count are removed.
		holders: s(`with c as materialized (
				select q.key, q.enough, (select count(*) from "weir".jobs_holders h where h.key = q.key) as n
				from unnest($1::bigint[], $2::bigint[]) q (key, enough))
			select c.key, '', 0::bigint, -1::smallint, false, c.n, 0::bigint from c
			union all
			select h.key, h.owner, h.job, h.mode, HELD, (extract(epoch from h.acquired) * 1000000)::bigint,
				coalesce((extract(epoch from j.finalized_at) * 1000000)::bigint, 0)
			from c join "weir".jobs_keys k on k.id = c.key join "weir".jobs_limiters l on l.id = k.limiter
			cross join lateral (select * from "weir".jobs_holders h where h.key = c.key
				and (c.n > c.enough or c.n + $3 >= coalesce((l.options->>'max_count')::bigint, 1)) offset 0) h
			left join RIVER j on j.id = h.job`),
		running: s(`select j.id, j.attempted_at from unnest($1::bigint[]) q (id)
			cross join lateral (select j.id, j.attempted_at, j.state from RIVER j where j.id = q.id offset 0) j where j.state = 'running'`),
		waitersOfJobs: s(`select key, job, (extract(epoch from since) * 1000000)::bigint, (extract(epoch from wake) * 1000000)::bigint, (extract(epoch from earliest) * 1000000)::bigint, coalesce(bucket, -1), in_worker, version
			from "weir".jobs_waiters where job = any($1)`),
		waiters: s(`select w.key, w.job, (extract(epoch from w.wake) * 1000000)::bigint, (extract(epoch from w.earliest) * 1000000)::bigint, w.in_worker
			from unnest($1::bigint[]) q (key)
			cross join lateral (select * from "weir".jobs_waiters w where w.key = q.key order by w.job limit 1000) w order by w.key, w.job`),
		fence: s(`select nextval('"weir".jobs_fences')`),

		saveKeys: s(`update "weir".jobs_keys k set state = q.state, hold = q.hold, waiting = q.waiting, expires = to_timestamp(q.expires / 1000000.0)
			from unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) q (id, state, hold, waiting, expires) where k.id = q.id`),
		removeHolders: s(`delete from "weir".jobs_holders d using (
			select h.key, h.owner, h.job from unnest($1::bigint[], $2::text[], $3::bigint[]) q (key, owner, job)
			join "weir".jobs_holders h on h.key = q.key and h.owner = q.owner and h.job = q.job for update of h skip locked) e
			where d.key = e.key and d.owner = e.owner and d.job = e.job`),
		saveHolders: s(`insert into "weir".jobs_holders (key, owner, job, attempted, mode, acquired, until, fence)
			select q.key, q.owner, q.job, q.attempted, q.mode, case when q.since > 0 then to_timestamp(q.since / 1000000.0) else clock_timestamp() end,
				case when q.until > 0 then clock_timestamp() + make_interval(secs => q.until / 1000000.0) end, q.fence
			from unnest($1::bigint[], $2::text[], $3::bigint[], $4::timestamptz[], $5::smallint[], $6::bigint[], $7::bigint[], $8::bigint[])
				q (key, owner, job, attempted, mode, until, fence, since)
			on conflict (key, owner, job) do update set attempted = excluded.attempted, mode = excluded.mode, until = excluded.until, fence = excluded.fence`),
		takeOver: s(`delete from "weir".jobs_holders h using unnest($1::bigint[], $2::text[]) q (key, owner)
			where h.key = q.key and h.owner = q.owner and h.mode = 2`),
		removeWaiters: s(`delete from "weir".jobs_waiters w using unnest($1::bigint[], $2::bigint[]) q (key, job) where w.key = q.key and w.job = q.job`),
		saveWaiters: s(`insert into "weir".jobs_waiters (key, job, wake, earliest, since, bucket, in_worker, version)
			select q.key, q.job, to_timestamp(q.wake / 1000000.0), to_timestamp(q.earliest / 1000000.0), clock_timestamp(), nullif(q.bucket, -1), q.in_worker, q.version
			from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[], $7::bigint[])
				q (key, job, wake, earliest, bucket, in_worker, version)
			on conflict (key, job) do update set wake = excluded.wake, earliest = excluded.earliest, bucket = excluded.bucket,
				in_worker = excluded.in_worker, version = excluded.version`),

		// Like River's JobRetry. A job whose row is locked is left alone. The answer for each job is 0, 1 or 2 for
		// comes, notYet and finished in database.go, and otherwise 3.
		bringBack: s(`with pulled as (update RIVER set state = 'available', scheduled_at = now() where id in (select id from RIVER
				where id = any($1) and state in ('available', 'scheduled') and scheduled_at > now() for update skip locked) returning id)
			select q.id, case when p.id is not null then 0 when j.id is null or j.finalized_at is not null then 2
				when j.state = 'running' and j.attempted_at > clock_timestamp() - interval '70 seconds'
					or j.state in ('available', 'scheduled') and j.scheduled_at > now() then 1
				when j.state = 'available' then 0 else 3 end
			from unnest($1::bigint[]) q (id) left join pulled p on p.id = q.id left join RIVER j on j.id = q.id`),
		// Of the first waiters of keys, those whose jobs never come back.
		finishedWaiters: s(`select w.key, w.job from unnest($1::bigint[]) q (key)
			cross join lateral (select w.key, w.job from "weir".jobs_waiters w where w.key = q.key order by w.job limit 1000) w
			left join RIVER j on j.id = w.job where j.id is null or j.finalized_at is not null`),
		// Jobs that River's leader should have made available.
		bringBackLate: s(`update RIVER set state = 'available' where id in (select id from RIVER
			where id = any(array(select w.job from "weir".jobs_waiters w where w.wake <= now()))
			and state = 'scheduled' and scheduled_at <= now() for update skip locked)`),
		// Jobs that were throttled by other options than those of now, once for each change. With version 0, those options are
		// not known.
		bringBackOutdated: s(`with outdated as materialized (select w.key, w.job, l.version from "weir".jobs_waiters w
				join "weir".jobs_keys k on k.id = w.key join "weir".jobs_limiters l on l.id = k.limiter
				where w.version <> 0 and w.version <> l.version and w.earliest <= now()),
			pulled as (update RIVER set state = 'available', scheduled_at = now() where id in (select id from RIVER
				where id = any(array(select job from outdated)) and state in ('available', 'scheduled') and scheduled_at > now()
				for update skip locked) returning id)
			update "weir".jobs_waiters w set version = o.version from outdated o join pulled p on p.id = o.job where w.key = o.key and w.job = o.job`),
		// Keys with a free slot whose waiters were not brought back. In random order, so that each is among them at some time.
		stalled: s(`select k.id from (select distinct w.key from "weir".jobs_waiters w
				where not w.in_worker and w.wake > clock_timestamp() + interval '1 second' and w.earliest <= clock_timestamp()) w
			join "weir".jobs_keys k on k.id = w.key join "weir".jobs_limiters l on l.id = k.limiter and l.type in ('mutex', 'semaphore')
			where (select count(*) from "weir".jobs_holders h left join RIVER j on j.id = h.job where h.key = k.id and LIVE)
				< coalesce((l.options->>'max_count')::bigint, 1) order by random() limit 1000`),
		// Keys of windows whose places are to be handed on.
		unclaimed: s(`with ` + moved + ` select k.key from (select distinct key from moved) k order by random() limit 100`),
		claim:     s(`select id from "weir".jobs_keys where id = any($1) for update skip locked`),
		// The keys are locked.
		handOn: s(`with ` + moved + `, saved as (update "weir".jobs_waiters w set bucket = m.bucket,
				wake = case when m.absent then w.wake else greatest(now(), to_timestamp(m.bucket / 1000000.0)) end
				from moved m where w.key = m.key and w.job = m.job)
			update RIVER r set scheduled_at = greatest(now(), q.at), state = case when q.at < now() + interval '5 seconds' then 'available' else r.state end
			from (select j.id, to_timestamp(m.bucket / 1000000.0) as at from moved m cross join lateral (select j.id from RIVER j
				where j.id = m.job and j.state in ('available', 'scheduled') and j.scheduled_at > now() for update skip locked) j
				where not m.absent) q where r.id = q.id`),

		// A lease that has ended is not renewed: the next batch removes the row. A locked row is being removed.
		renewLeases: s(`with renewed as (update "weir".jobs_holders d set until = clock_timestamp() + make_interval(secs => $3::bigint / 1000000.0)
				from (select h.key, h.owner, h.job from unnest($1::bigint[], $2::timestamptz[]) q (job, attempted)
					join "weir".jobs_holders h on h.job = q.job and h.attempted = q.attempted
					where h.mode = 0 and h.until > clock_timestamp() for update of h skip locked) e
				where d.key = e.key and d.owner = e.owner and d.job = e.job returning d.job, d.attempted)
			select job, attempted from renewed union all
			select h.job, h.attempted from unnest($1::bigint[], $2::timestamptz[]) q (job, attempted)
			join "weir".jobs_holders h on h.job = q.job and h.attempted = q.attempted where h.mode = 1`),
		removeFinishedWaiters: s(`delete from "weir".jobs_waiters w using (select o.key, o.job from "weir".jobs_waiters o
			left join RIVER j on j.id = o.job where o.wake < clock_timestamp() - interval '1 minute'
			and (j.id is null or j.finalized_at is not null) limit 1000 for update of o skip locked) e where w.key = e.key and w.job = e.job`),
		lockExpiredKeys: s(`select id from "weir".jobs_keys where expires < clock_timestamp() - interval '1 minute' order by id limit 1000
			for update skip locked`),
		removeExpiredKeys: s(`with gone as (delete from "weir".jobs_keys where id in (select k.id from "weir".jobs_keys k
			where k.id = any($1) and k.expires < clock_timestamp() - interval '1 minute'
			and not exists (select from "weir".jobs_holders h left join RIVER j on j.id = h.job where h.key = k.id and LIVE)
			and not exists (select from "weir".jobs_waiters w where w.key = k.id)) returning id)
			delete from "weir".jobs_holders where key in (select id from gone)`),
		removeDeadHolders: s(`delete from "weir".jobs_holders d using (select h.key, h.owner, h.job from "weir".jobs_holders h
			left join RIVER j on j.id = h.job where not LIVE limit 10000 for update of h skip locked) e
			where d.key = e.key and d.owner = e.owner and d.job = e.job`),

		checkTables: s(`select to_regclass('"weir".jobs_migrations') is not null, to_regclass('RIVER') is not null`),
		version:     s(`select coalesce(max(version), 0) from "weir".jobs_migrations`),
		setLimiter: s(`insert into "weir".jobs_limiters as l (type, name, options) values ($1, $2, $3)
			on conflict (type, name) do update set options = excluded.options, version = l.version + 1
			where l.options is distinct from excluded.options returning id`),
		extendExpiry: s(`update "weir".jobs_keys set expires = greatest(expires, clock_timestamp() + make_interval(secs => $2::bigint / 1000000.0))
			where id in (select id from "weir".jobs_keys where limiter = $1 order by id for update)`),
		unknown: s(`select q.type, q.name from unnest($1::text[], $2::text[]) q (type, name)
			where not exists (select from "weir".jobs_limiters l where l.type = q.type and l.name = q.name) order by 1, 2`),

		lockLimiter: s(`select id from "weir".jobs_limiters where type = $1 and name = $2 for update`),
		lockKeys:    s(`select id from "weir".jobs_keys where limiter = $1 order by id for update`),
		usedBy: s(`select h.job, true from "weir".jobs_keys k join "weir".jobs_holders h on h.key = k.id left join RIVER j on j.id = h.job
			where k.limiter = $1 and LIVE
			union select w.job, false from "weir".jobs_keys k join "weir".jobs_waiters w on w.key = k.id join RIVER j on j.id = w.job
			where k.limiter = $1 and j.finalized_at is null order by 2 desc, 1 limit 1000`),
		remove: s(`with gone as (delete from "weir".jobs_limiters where id = $1),
			holders as (delete from "weir".jobs_holders h using "weir".jobs_keys k where k.limiter = $1 and h.key = k.id)
			delete from "weir".jobs_waiters w using "weir".jobs_keys k where k.limiter = $1 and w.key = k.id`),

		listLimiters: s(`select l.type, l.name, l.options::text,
			(select count(*) from "weir".jobs_keys k where k.limiter = l.id and (k.key <> '' or l.type <> 'dynamic_window')),
			(select count(*) from "weir".jobs_keys k join "weir".jobs_holders h on h.key = k.id left join RIVER j on j.id = h.job
				where k.limiter = l.id and LIVE),
			(select count(*) from "weir".jobs_keys k join "weir".jobs_waiters w on w.key = k.id where k.limiter = l.id)
			from "weir".jobs_limiters l order by l.type, l.name`),
		listKeys: s(`select k.key from "weir".jobs_keys k join "weir".jobs_limiters l on l.id = k.limiter
			where l.type = $1 and l.name = $2 and k.key > $3 and (k.key <> '' or l.type <> 'dynamic_window') order by k.key limit $4`),
		oneLimiter: s(`select id, options::text from "weir".jobs_limiters where type = $1 and name = $2`),
		oneKey: s(`select k.id, k.state, k.hold, (select count(*) from "weir".jobs_waiters w where w.key = k.id)
			from "weir".jobs_keys k where k.limiter = $1 and k.key = $2`),
		allWaiters: s(`select count(*) from "weir".jobs_keys k join "weir".jobs_waiters w on w.key = k.id where k.limiter = $1`),
		allKeys:    s(`select id, limiter, key, state, waiting from "weir".jobs_keys where limiter = $1 and state <> ''`),
		listHolders: s(`select h.owner, h.job, h.mode, h.acquired, h.until, h.fence from "weir".jobs_holders h left join RIVER j on j.id = h.job
			where h.key = $1 and LIVE order by h.acquired, h.job limit 1000`),
		countOwners: s(`select count(distinct h.owner) from "weir".jobs_holders h left join RIVER j on j.id = h.job where h.key = $1 and LIVE`),
		listWaiters: s(`select w.job, w.since, w.wake, w.bucket is not null, w.in_worker from "weir".jobs_waiters w join RIVER j on j.id = w.job
			where w.key = $1 and j.finalized_at is null order by w.job limit 1000`),
		releaseOwner: s(`delete from "weir".jobs_holders h using "weir".jobs_keys k, "weir".jobs_limiters l
			where l.type = $1 and l.name = $2 and k.limiter = l.id and k.key = $3 and h.key = k.id and h.owner = $4 returning h.key`),
	}
}
