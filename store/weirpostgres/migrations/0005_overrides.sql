-- weir 5: the override of a definition, as backend.Definition has it.

alter table "weir".definitions add column override text not null default '';

insert into "weir".migrations (version) values (5);
