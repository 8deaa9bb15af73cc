package weirpostgres

import "github.com/weir-go/weir/store/weirpostgres/pgmigrate"

// statements are the texts of all statements. They are made once, because pgx finds a prepared statement by its text.
type statements struct {
	decide, decideMany           string
	decideSingle, replace        string
	acquire, renew, release      string
	load, create, redefine, echo string
	sweep                        string

	probeStates, probeSemaphores, probeLeases string
}

func newStatements(schema string, async bool) statements {
	s := func(text string) string { return pgmigrate.InSchema(text, schema) }
	settings := setLockTimeout("$14")
	if async {
		settings += `, set_config('synchronous_commit', 'off', true)`
	}
	return statements{
		decideSingle: s(singleStatement(settings)),
		// If there is a newer definition, the function decide is not called, and the answer is the newer version. The
		// statement's snapshot has every definition that was committed before the statement was sent.
		decide: s(`select coalesce(
				(select array[2, 0, d.version] from "weir".definitions d where d.name = $1::text and d.version > ($3::bigint[])[3]),
				"weir".decide($1::text, $2::bytea, $3::bigint[]))
			from (select ` + setLockTimeout("$4") + `) w`),
		// unnest keeps the order of the arrays, so all sessions lock keys in the same order.
		decideMany: s(`select coalesce(
				(select array[2, 0, d.version] from "weir".definitions d where d.name = u.name and d.version > ($5::bigint[])[u.first+2]),
				"weir".decide(u.name, u.key, ($5::bigint[])[u.first:u.last]))
			from (select ` + setLockTimeout("$6") + `) w, unnest($1::text[], $2::bytea[], $3::int[], $4::int[]) u(name, key, first, last)`),
		replace: s(`select "weir".replace(u.name, u.key, $3::boolean,
				($4::bigint[])[9*u.i-8:9*u.i], ($5::bigint[])[u.old_first:u.old_last],
				($6::bigint[])[9*u.i-8:9*u.i], ($7::bigint[])[u.new_first:u.new_last])
			from (select ` + setLockTimeout("$12") + `) w, unnest($1::text[], $2::bytea[], $8::int[], $9::int[], $10::int[], $11::int[])
			with ordinality u(name, key, old_first, old_last, new_first, new_last, i)`),
		acquire: s(`select coalesce(
				(select array[d.version] from "weir".definitions d where d.name = u.name and d.version > u.version),
				"weir".acquire(u.name, u.key, array[u.version, u.permits, u.waiting],
				($8::bytea[])[u.first:u.last], ($9::bigint[])[2*u.first-1:2*u.last]))
			from (select ` + setLockTimeout("$10") + `) w,
			unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::int[], $7::int[])
			u(name, key, version, permits, waiting, first, last)`),
		renew: s(`select "weir".renew(u.name, u.key, u.id, u.fence, u.ttl)
			from (select ` + setLockTimeout("$6") + `) w, unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[]) u(name, key, id, fence, ttl)`),
		release: s(`select "weir".release(u.name, u.key, u.id, u.fence, $5::boolean, u.notifies)
			from (select ` + setLockTimeout("$7") + `) w, unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[], $6::boolean[]) u(name, key, id, fence, notifies)`),
		load: s(`select "weir".clock(), d.version, d.kind, d.permits, d.period, d.refill, d.segments, d.anchor, d.reached,
				d.generation, d.explicit, d.made, d.made_by, d.past, d.override
			from (select) one left join "weir".definitions d on d.name = $1::text`),
		create: s(`with made as (insert into "weir".definitions (name, version, kind, permits, period, refill, segments, anchor, reached,
					generation, explicit, made, made_by, past, override)
				select $1::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9::bigint, $10::boolean,
					$11::bigint, $12::boolean, $13::bigint, $14::text, $15::text, $16::text from (select ` + setLockTimeout("$17") + `) w
				on conflict do nothing returning name)
			select "weir".send_notice('d', name, ''), $2::bigint from made`),
		redefine: s(`with made as (update "weir".definitions set version = $3::bigint, kind = $4::bigint, permits = $5::bigint,
				period = $6::bigint, refill = $7::bigint, segments = $8::bigint, anchor = $9::bigint, reached = $10::boolean,
				generation = $11::bigint, explicit = $12::boolean, made = $13::bigint, made_by = $14::text, past = $15::text,
				override = $16::text from (select ` + setLockTimeout("$17") + `) w where name = $1::text and version = $2::bigint returning name)
			select "weir".send_notice('d', name, '') from made`),
		echo:  `select pg_notify($1::text, '') where not exists (select from pg_listening_channels() c where c = $1::text)`,
		sweep: s(`select "weir".sweep($1::bigint, $2::bigint)`),

		probeStates:     s(probeStatement("states", "s.name = u.name and s.key = u.key")),
		probeSemaphores: s(probeStatement("semaphores", "s.name = u.name and s.key = u.key")),
		probeLeases:     s(probeStatement("leases", "s.name = u.name and s.key = u.key and s.id = u.id")),
	}
}

// setLockTimeout sets lock_timeout for this statement. It takes effect before the first row is read, because a subquery
// with set_config is not flattened.
func setLockTimeout(ms string) string { return `set_config('lock_timeout', ` + ms + `::text, true)` }

// probeStatement returns the statement that finds the rows of a table that are locked and the rows that cannot be seen.
// The statement locks all other rows until it ends. condition is true if the row s belongs to the key u.
func probeStatement(table, condition string) string {
	row := ` exists (select from "weir".` + table + ` s where ` + condition
	return `select u.i::int,` + row + `)
		from unnest($1::text[], $2::bytea[], $3::bytea[]) with ordinality u(name, key, id, i)
		where not` + row + ` for no key update skip locked)`
}
