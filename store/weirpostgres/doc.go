// Package weirpostgres keeps the state of limiters in PostgreSQL, version 13 or later, where many instances share them.
//
// [Migrate] creates the schema; programs with their own migration tool run the files in the folder migrations. Then
// [New] returns a Store on a pool.
//
// Each call is one statement in its own transaction, which decides by the server's clock. A function of the schema decides
// most requests by one upsert; a call with other requests has a second statement. Apart from prepared statements, nothing
// depends on the state of a session. The sessions must have isolation level read committed, which is the default.
//
// # Behind PgBouncer
//
// Session mode works like a direct connection. In transaction mode, Listen returns an error and limiters poll: PgBouncer
// drops notices. Set default_query_exec_mode=exec in the pool's connection string, or pgx.QueryExecModeExec in its
// configuration: in transaction mode a prepared statement does not exist in the next transaction, unless PgBouncer tracks
// prepared statements (1.21 and later, max_prepared_statements). Without the setting, each connection finds that out by a
// call that takes up to three round trips, and the server plans every statement. A separate pool for the Backend, directly
// to the server, is faster and can listen.
//
// The same holds for a pool that sends "discard all" when a connection is released, and for a connection on which the
// program has sent "deallocate all": from then on, the Backend sends its statements on it without preparing them.
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
