-- weir 4: deleting rows that no key needs any more.

-- Deletes what has become useless in a range of pages of states, and in the same range of semaphores. What
-- another session has locked is left. A state is deleted when it says no more than none would (backend.Definition.FullAt); one of
-- an older definition, which goes on by the new one from when that came into force, after the longest that this
-- could take. In floating point, where nothing overflows, and a millisecond late for its rounding. Returns how many rows went, and how many pages the larger of the tables has.
create function "weir".sweep(first bigint, pages bigint) returns bigint[]
language plpgsql volatile as $$
declare
  a constant tid := format('(%s,0)', first)::tid;
  b constant tid := format('(%s,0)', first + pages)::tid;
  t constant bigint := "weir".clock();
  gone bigint; freed bigint; k record;
begin
  perform set_config('synchronous_commit', 'off', true); -- what comes back after a crash is swept again
  delete from "weir".states where ctid = any (array(
    select s.ctid from "weir".states s left join "weir".definitions d on d.name = s.name and d.version > s.version and d.period > 0
      where s.ctid >= a and s.ctid < b
        and s.anchor + s.period * (case
          when s.kind = 3 then coalesce(s.taken[array_length(s.taken, 1) - 1] + s.segments, s.line)
          when s.missing = 0 then s.line
          when s.refill = 0 then s.line + 1
          else s.line + (s.missing - 1) / s.refill + 1 end)::float8 < t - 1000
        and (d.version is null or greatest(d.version, s.anchor + s.period * s.line::float8) + d.period * (case
          when d.kind = 3 then d.segments + 1
          when d.refill = 0 then 2
          else greatest(s.missing - 1, 0) / d.refill + 2 end)::float8 < t - 1000)
      for update of s skip locked));
  get diagnostics gone = row_count;
  -- Locked first, and looked at then: no lease of the key can be acquired meanwhile. The row stays as long as
  -- the clock is not past its last fence.
  for k in select s.name, s.key from "weir".semaphores s
      where s.ctid >= a and s.ctid < b and s.fence < t and s.waiting < t for update skip locked loop
    freed := "weir".fold(k.name, k.key, t);
    if not exists (select from "weir".leases l where l.name = k.name and l.key = k.key) then
      delete from "weir".semaphores s where s.name = k.name and s.key = k.key;
      gone := gone + 1;
    elsif freed > 0 then
      update "weir".semaphores s set in_use = s.in_use - freed where s.name = k.name and s.key = k.key;
    end if;
  end loop;
  return array[gone, greatest(pg_relation_size('"weir".states'), pg_relation_size('"weir".semaphores'))
    / current_setting('block_size')::bigint];
end $$;

insert into "weir".migrations (version) values (4);
