// Package weirpostgres keeps the state of limiters in PostgreSQL, version 13 or later, where many instances
// share them.
//
// [Migrate] creates the schema, or who manages schemas otherwise runs the files in the folder migrations. Then
// [NewBackend] makes what the package store builds limiters on, from a pool that stays the caller's.
//
// Each call is one statement in a transaction of its own, which decides by the server's clock. A plain upsert answers
// the usual question; all else is done by functions of the schema, now and then in a second call where the upsert could
// not grant what was asked. Nothing depends on the state of a session, besides prepared statements. The server's
// sessions must be at isolation level read committed, which is the default.
//
// # Behind PgBouncer
//
// In session mode there is nothing to do. In transaction mode a prepared statement is not there for the next
// transaction, so unless PgBouncer keeps track of them (1.21 and later, max_prepared_statements) the pool must
// be told not to prepare any: default_query_exec_mode=exec in its connection string, or
// pgx.QueryExecModeExec in its configuration; cache_describe and simple_protocol work, too. Then the functions
// decide everything, since the server would plan the upsert anew each time. Nobody can listen
// through it, which Listen finds out, and then everything is polled. A pool of its own for the Backend, straight
// to the server, is faster and can listen.
//
// # What to look after
//
// Those who write one key wait for each other until the one before is on the server's disk. More connections do not make
// that faster: in one measurement a pool of 2 wrote a key half as often again as a pool of 32. Rejections and many
// keys gain from more.
//
// A transaction that stays open for long, anywhere in the database, keeps PostgreSQL from tidying up the versions
// of rows that are updated often: a hot key becomes slower by and by, up to tenfold and more. Set
// idle_in_transaction_session_timeout.
package weirpostgres
