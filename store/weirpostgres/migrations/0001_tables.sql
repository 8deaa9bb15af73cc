-- weir 1: the tables, and the clock.
--
-- These files can be run as they are, in their order, each in a transaction: psql -1 -f 0001_tables.sql. For
-- another schema replace "weir", with its quotes, everywhere. What a file has made is never changed by a later
-- one in a way that an older program would notice: a function that does something else has another name.

do $$ begin
  if to_regnamespace('"weir"') is null then
    create schema "weir";
  end if;
end $$;

create table "weir".migrations (
  version integer primary key,
  applied timestamptz not null default now()
);

create table "weir".definitions (
  name     text collate "C" primary key,
  version  bigint not null,
  kind     bigint not null,
  permits  bigint not null,
  period   bigint not null,
  refill   bigint not null,
  segments bigint not null,
  anchor   bigint not null,
  reached  boolean not null
);

-- One row for each key of a bucket or a window. Pages are left half empty and nothing but the primary key is
-- indexed, so that an update needs no work in an index (HOT) and its page is tidied up by the next one. An index
-- on a column that changes would end that. at: when the row was last written; line is the one of that moment.
-- taken: line and permits of one segment after the other.
create table "weir".states (
  name     text collate "C" not null,
  key      bytea not null,
  version  bigint not null,
  kind     bigint not null,
  anchor   bigint not null,
  period   bigint not null,
  refill   bigint not null,
  segments bigint not null,
  line     bigint not null,
  missing  bigint not null,
  held     bigint not null,
  at       bigint not null,
  taken    bigint[],
  primary key (name, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);

-- One row for each key of a concurrency limiter of which something is held. in_use is the sum of the permits of
-- all rows in leases, also of ended ones that are not deleted yet. waiting: until when releases are
-- to be told of.
create table "weir".semaphores (
  name    text collate "C" not null,
  key     bytea not null,
  version bigint not null,
  in_use  bigint not null,
  fence   bigint not null,
  waiting bigint not null,
  primary key (name, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);

-- A lease that was released ends at 0.
create table "weir".leases (
  name    text collate "C" not null,
  key     bytea not null,
  id      bytea not null,
  permits bigint not null,
  fence   bigint not null,
  until   bigint not null,
  primary key (name, key, id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

create index leases_until on "weir".leases (name, key, until);

-- The only clock: µs since 1970. Never now(), which is when the transaction began: before it waited for a lock.
create function "weir".clock() returns bigint language sql volatile as $$
  select (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

insert into "weir".migrations (version) values (1);
