-- weir jobs 2: what a waiting job was throttled by.

-- version: that of the limiter's options when the job was throttled last. If it is another one now, the job is brought back.
-- 0: not known, because the job was throttled by a program that knows version 1 of the tables. It comes back at wake.
alter table "weir".jobs_waiters add column version bigint not null default 0;

insert into "weir".jobs_migrations (version) values (2);
