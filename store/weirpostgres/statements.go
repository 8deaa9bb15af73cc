package weirpostgres

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

// statements are the texts of all statements. They are made once, because pgx finds a prepared statement by its text.
type statements struct {
	take, decide, replace        string
	acquire, renew, release      string
	load, create, redefine, echo string
	sweep                        string
}

var parameter = regexp.MustCompile(`@\w+`)

// numbered replaces the names of parameters, such as @key, by their positions in params, such as $2. That is the order of the
// arguments.
func numbered(text string, params ...string) string {
	return parameter.ReplaceAllStringFunc(text, func(name string) string {
		i := slices.Index(params, name[1:])
		if i < 0 {
			panic("weirpostgres: there is no parameter " + name) // unreachable: the texts are constants
		}
		return "$" + strconv.Itoa(i+1)
	})
}

func newStatements(schema string, async bool) statements {
	s := func(text string, params ...string) string {
		return pgmigrate.InSchema(numbered(text, params...), schema)
	}
	// The settings hold for one statement. They take effect before the first row is read, because a subquery with set_config is not
	// flattened. Without sequential scans, functions are planned so that the plan serves when a table has grown.
	const (
		plans = `set_config('enable_seqscan', 'off', true)`
		waits = `(select set_config('lock_timeout', @lock_timeout::text, true), ` + plans + `) w`
	)
	commits := waits // of statements that may be lost if the server crashes: see BackendOptions.AsynchronousCommit
	if async {
		commits = `(select set_config('lock_timeout', @lock_timeout::text, true), ` + plans + `, set_config('synchronous_commit', 'off', true)) w`
	}
	return statements{
		take: s(`select "weir".take(@names::text[], @keys::bytea[], @versions::bigint[], @lowest::bigint[], @highest::bigint[], @blocks::boolean[]) from `+commits,
			"names", "keys", "versions", "lowest", "highest", "blocks", "lock_timeout"),
		// unnest keeps the order of the arrays, so all sessions lock keys in the same order. They are subqueries for the reason that
		// the function take has.
		decide: s(`select "weir".decide(u.name, u.key, u.version, u.kind, u.permits, u.anchor, u.period, u.refill, u.segments, u.read_first, @skip_locked::boolean,
				(@requests::bigint[])[u.first:u.last])
			from `+commits+`, unnest((select @names::text[]), (select @keys::bytea[]), (select @versions::bigint[]), (select @kinds::bigint[]), (select @permits::bigint[]),
				(select @anchors::bigint[]), (select @periods::bigint[]), (select @refills::bigint[]), (select @segments::bigint[]), (select @read_first::boolean[]), (select @first::int[]), (select @last::int[]))
				u(name, key, version, kind, permits, anchor, period, refill, segments, read_first, first, last)`,
			"names", "keys", "versions", "kinds", "permits", "anchors", "periods", "refills", "segments", "read_first", "first", "last", "requests", "skip_locked", "lock_timeout"),
		replace: s(`select "weir".replace(u.name, u.key, @skip_locked::boolean,
				(@old::bigint[])[10*u.i-9:10*u.i], (@old_taken::bigint[])[u.old_first:u.old_last],
				(@next::bigint[])[10*u.i-9:10*u.i], (@next_taken::bigint[])[u.next_first:u.next_last])
			from `+commits+`, unnest(@names::text[], @keys::bytea[], @old_first::int[], @old_last::int[], @next_first::int[], @next_last::int[])
				with ordinality u(name, key, old_first, old_last, next_first, next_last, i)`,
			"names", "keys", "skip_locked", "old", "old_taken", "old_first", "old_last", "next", "next_taken", "next_first", "next_last", "lock_timeout"),
		acquire: s(`select "weir".acquire(u.name, u.key, @skip_locked::boolean, array[u.version, u.permits, u.waiting],
				(@ids::bytea[])[u.first:u.last], (@wants::bigint[])[2*u.first-1:2*u.last])
			from `+waits+`, unnest(@names::text[], @keys::bytea[], @versions::bigint[], @permits::bigint[], @waiting::bigint[], @first::int[], @last::int[])
				u(name, key, version, permits, waiting, first, last)`,
			"names", "keys", "versions", "permits", "waiting", "first", "last", "ids", "wants", "skip_locked", "lock_timeout"),
		renew: s(`select "weir".renew(u.name, u.key, u.id, u.fence, u.ttl)
			from `+waits+`, unnest(@names::text[], @keys::bytea[], @ids::bytea[], @fences::bigint[], @ttls::bigint[]) u(name, key, id, fence, ttl)`,
			"names", "keys", "ids", "fences", "ttls", "lock_timeout"),
		// If a crash of the server undoes a release, the lease ends with its TTL.
		release: s(`select "weir".release(u.name, u.key, u.id, u.fence, u.notifies = 1)
			from `+commits+`, unnest(@names::text[], @keys::bytea[], @ids::bytea[], @fences::bigint[], @notifies::bigint[]) u(name, key, id, fence, notifies)`,
			"names", "keys", "ids", "fences", "notifies", "lock_timeout"),
		load: s(`select "weir".clock(), d.version, d.kind, d.permits, d.period, d.refill, d.segments, d.anchor, d.anchor_in_force, d.every, d.zone, d.terms
			from (select) one left join "weir".definitions d on d.name = @name::text`, "name"),
		create: s(`with made as (insert into "weir".definitions (name, `+definitionColumns+`)
				select @name::text, `+definitionParameters+` from `+waits+`
				on conflict do nothing returning name)
			select "weir".send_notice('d', name, ''), @old::bigint from made`, defineParameters...),
		redefine: s(`with made as (update "weir".definitions set (`+definitionColumns+`) =
				(select `+definitionParameters+` from `+waits+`) where name = @name::text and version = @old::bigint returning name)
			select "weir".send_notice('d', name, '') from made`, defineParameters...),
		echo:  `select pg_notify($1::text, '') where not exists (select from pg_listening_channels() c where c = $1::text)`,
		sweep: s(`select "weir".sweep(@first::bigint, @pages::bigint) from (select `+plans+`) w`, "first", "pages"),
	}
}

const (
	definitionColumns = `version, kind, permits, period, refill, segments, anchor, anchor_in_force, every, zone, terms`

	definitionParameters = `@version::bigint, @kind::bigint, @permits::bigint, @period::bigint, @refill::bigint, @segments::bigint,
		@anchor::bigint, @anchor_in_force::boolean, @every::bigint, @zone::text, @terms::text`
)

var defineParameters = []string{
	"name", "old", "version", "kind", "permits", "period", "refill", "segments", "anchor", "anchor_in_force", "every", "zone",
	"terms", "lock_timeout",
}
