-- weir 5: whose limits those in force are: see backend.Origin.

alter table "weir".definitions
  add column generation bigint not null default 0,
  add column explicit boolean not null default false,
  add column made bigint not null default 0,
  add column made_by text not null default '',
  add column past text not null default '';

insert into "weir".migrations (version) values (5);
