-- weir 1: the tables, and the clock.
--
-- These files can be run as they are, in order, each in a transaction: psql -1 -f 0001_tables.sql. For another schema,
-- replace "weir", with its quotes, everywhere. A later file never changes what an older program uses: a function that
-- does something else has another name.

do $$ begin
  if to_regnamespace('"weir"') is null then
    create schema "weir";
  end if;
end $$;

create table "weir".migrations (
  version integer primary key,
  applied timestamptz not null default now()
);

-- One row for each limiter: backend.Definition.
create table "weir".definitions (
  name            text collate "C" primary key,
  version         bigint not null,
  kind            bigint not null,
  permits         bigint not null,
  period          bigint not null,
  refill          bigint not null,
  segments        bigint not null,
  anchor          bigint not null,
  anchor_in_force boolean not null,
  every           bigint not null,
  zone            text not null,
  terms           text not null
);

-- One row for each key of a bucket or window: backend.State, and when the row was last written. taken has the line and
-- the permits of each segment in turn. A refunded of null is 0, and takes no space. Of a calendar, anchor and period are those of
-- one window.
--
-- Pages are left half empty, and only the primary key is indexed. So an update changes no index (HOT), and the next
-- update reuses its space. With an index on a column that changes, neither would be so.
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
  floor    bigint not null,
  written  bigint not null,
  refunded bigint,
  taken    bigint[],
  primary key (name, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);

-- One row for each key of a concurrency limiter that has leases. in_use is the sum of the permits of all its rows in
-- leases, including expired rows that are not deleted yet. Until notify_until, releases send notices.
create table "weir".semaphores (
  name         text collate "C" not null,
  key          bytea not null,
  version      bigint not null,
  in_use       bigint not null,
  fence        bigint not null,
  notify_until bigint not null,
  primary key (name, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000);

-- A lease that was released has 0 in expires until it is deleted.
create table "weir".leases (
  name    text collate "C" not null,
  key     bytea not null,
  id      bytea not null,
  permits bigint not null,
  fence   bigint not null,
  expires bigint not null,
  ttl     bigint not null,
  primary key (name, key, id)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

create index leases_expires on "weir".leases (name, key, expires);

-- The only clock: µs since 1970. now() is not used: it is when the transaction began, before it waited for a lock.
create function "weir".clock() returns bigint language sql volatile as $$
  select (date_part('epoch', clock_timestamp()) * 1000000)::bigint
$$;

-- Sends a notice to all instances: what (d: a new definition, r: a release), then the name and the key in base64.
create function "weir".send_notice(what text, a_name text, a_key bytea) returns void language sql volatile as $$
  select pg_notify('weir:"weir"', what || translate(
    encode(convert_to(a_name, 'UTF8'), 'base64') || '.' || encode(a_key, 'base64'), E'\n', ''))
$$;

insert into "weir".migrations (version) values (1);
