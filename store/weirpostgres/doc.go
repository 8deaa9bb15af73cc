// Package weirpostgres keeps the state of limiters in PostgreSQL, version 13 or later, where many instances share them.
//
// [Migrate] creates the schema; programs with their own migration tool run the files in the folder migrations. Then
// [New] returns a Store on a pool.
//
// Each call is one statement in its own transaction, which decides by the server's clock. A plain upsert decides most
// requests. If it cannot grant what a request asks for, a second statement calls a function of the schema, which also
// decides all other requests. Apart from prepared statements, nothing depends on the state of a session. The sessions
// must have isolation level read committed, which is the default.
//
// # Behind PgBouncer
//
// Session mode works without settings. In transaction mode a prepared statement does not exist in the next transaction.
// Unless PgBouncer tracks prepared statements (1.21 and later, max_prepared_statements), the pool must not prepare any:
// set default_query_exec_mode=exec in its connection string, or pgx.QueryExecModeExec in its configuration;
// cache_describe and simple_protocol work, too. Then the functions decide everything, because the server would plan the
// upsert each time. Through transaction mode, Listen returns an error, and limiters poll. A separate pool for the
// Backend, directly to the server, is faster and can listen.
//
// # Operation
//
// A session that writes a key waits until the write before it is on the server's disk. More connections do not make that
// faster: in one measurement a pool of 2 wrote a key 1.5 times as often as a pool of 32. Rejections and writes of many
// keys gain from more connections.
//
// A transaction that stays open for long, anywhere in the database, keeps PostgreSQL from removing old versions of rows
// that are updated often: a hot key becomes slower over time, by a factor of ten and more. Set
// idle_in_transaction_session_timeout.
package weirpostgres
