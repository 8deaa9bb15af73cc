-- weir jobs 1: the tables.
--
-- These files can be run as they are, in their order, each in a transaction: psql -1 -f 0001_tables.sql. For
-- another schema replace "weir", with its quotes, everywhere.

do $$ begin
  if to_regnamespace('"weir"') is null then
    create schema "weir";
  end if;
end $$;

create table "weir".jobs_migrations (
  version integer primary key,
  applied timestamptz not null default now()
);

-- Limiters as they were last set. A mutex has a row, too, made by the first job that names it.
create table "weir".jobs_limiters (
  id      bigint generated always as identity primary key,
  type    text collate "C" not null,
  name    text collate "C" not null,
  options jsonb not null,
  version bigint not null default 1,
  unique (type, name)
);

-- One row for each key of a limiter; limiters without keys have one whose key is empty. A job that asks for a key locks
-- its row. Pages are left half empty and nothing but the two keys is indexed, so that an update needs no work in an
-- index (HOT). state: a window's buckets. hold: how long a slot is held, a moving mean in µs. waiting: how many rows
-- of jobs_waiters there are. expires: when the row no longer has an effect.
create table "weir".jobs_keys (
  id      bigint generated always as identity primary key,
  limiter bigint not null references "weir".jobs_limiters on delete cascade,
  key     text collate "C" not null,
  state   text not null default '',
  hold    bigint not null default 0,
  waiting bigint not null default 0,
  expires timestamptz not null,
  unique (limiter, key)
) with (fillfactor = 50);

-- Holders of slots of a mutex or a semaphore. Whether a row still counts follows from the row of the job:
--   mode 0, relaxed: while that run of the job is running and the lease has not ended
--   mode 1, strict: while the job is not finalized
--   mode 2, kept: until it is released or the time until is over
-- key is the ID of a row in jobs_keys. It is no foreign key, because checking one would be a third of the cost of a job.
-- Instead, rows are written only while the key's row is locked, and are deleted with it.
create table "weir".jobs_holders (
  key       bigint not null,
  owner     text collate "C" not null,
  job       bigint not null,
  attempted timestamptz not null,
  mode      smallint not null,
  acquired  timestamptz not null,
  until     timestamptz,
  fence     bigint not null,
  primary key (key, owner, job)
) with (fillfactor = 70);
create index on "weir".jobs_holders (job);

-- Jobs that were throttled and come back at wake. earliest: when they may be brought back, if their turn comes sooner than
-- expected. bucket: when the bucket of the job's reservation in a window begins, in µs. in_worker: the job waits in its
-- worker.
create table "weir".jobs_waiters (
  key       bigint not null, -- as in jobs_holders
  job       bigint not null,
  wake      timestamptz not null,
  earliest  timestamptz not null,
  since     timestamptz not null,
  bucket    bigint,
  in_worker boolean not null,
  primary key (key, job)
) with (fillfactor = 70);
create index on "weir".jobs_waiters (job);

-- Each transaction that grants anything takes a number and uses the 65536 from there on.
create sequence "weir".jobs_fences increment by 65536;

insert into "weir".jobs_migrations (version) values (1);
