-- weir 4: deleting unused rows.

-- Deletes unused rows in a range of pages of states, and in the same range of semaphores. Rows that another session has
-- locked stay. Returns how many rows were deleted, and how many pages the larger of the tables has.
--
-- A state is unused from rate.Schedule.FullAt on. A state of an older definition can still be converted to the newer
-- one, by which it may take longer to be full; it is deleted only when that time has passed, too. The times are computed
-- in floating point, which cannot overflow. Because of rounding, a row is deleted a millisecond later. That of a calendar is kept for
-- twice as long as its window, and more because some are longer than others: another program can think that it has not ended.
create function "weir".sweep(first bigint, pages bigint) returns bigint[]
language plpgsql volatile as $$
declare
  first_row constant tid := format('(%s,0)', first)::tid;
  end_row constant tid := format('(%s,0)', first + pages)::tid;
  t constant bigint := "weir".clock();
  deleted bigint; freed bigint; semaphore record;
begin
  perform set_config('synchronous_commit', 'off', true); -- rows that come back after a crash are swept again
  delete from "weir".states where ctid = any (array(
    select s.ctid from "weir".states s left join "weir".definitions d on d.name = s.name and d.version > s.version and d.period > 0
      where s.ctid >= first_row and s.ctid < end_row
        and s.anchor + s.period * (case
          when s.kind = 3 then coalesce(s.taken[array_length(s.taken, 1) - 1] + s.segments, s.line)
          when s.kind = 5 then s.line + 2.125
          when s.missing + coalesce(s.refunded, 0) = 0 then s.line
          when s.refill = 0 then s.line + 1
          else s.line + (s.missing + coalesce(s.refunded, 0) - 1) / s.refill + 1 end)::float8 < t - 1000
        and (d.version is null or greatest(d.version, s.anchor + s.period * s.line::float8) + d.period * (case
          when d.kind in (3, 5) then d.segments + 1
          when d.refill = 0 then 2
          else greatest(s.missing + coalesce(s.refunded, 0) - 1, 0) / d.refill + 2 end)::float8 < t - 1000)
      for update of s skip locked));
  get diagnostics deleted = row_count;
  -- A row with a live lease is not locked: most are, and the locks last as long as the sweep. Otherwise the row is locked before its
  -- leases are read again, so that no lease of the key can be acquired meanwhile. It is kept until
  -- the clock is past its last fence; otherwise the next fence could be smaller.
  for semaphore in select s.name, s.key from "weir".semaphores s
      where s.ctid >= first_row and s.ctid < end_row and s.fence < t and s.notify_until < t
        and not exists (select from "weir".leases l where l.name = s.name and l.key = s.key and l.expires > t)
      for update of s skip locked loop
    freed := "weir".delete_expired(semaphore.name, semaphore.key, t);
    if not exists (select from "weir".leases l where l.name = semaphore.name and l.key = semaphore.key) then
      delete from "weir".semaphores s where s.name = semaphore.name and s.key = semaphore.key;
      deleted := deleted + 1;
    elsif freed > 0 then
      update "weir".semaphores s set in_use = s.in_use - freed where s.name = semaphore.name and s.key = semaphore.key;
    end if;
  end loop;
  return array[deleted, greatest(pg_relation_size('"weir".states'), pg_relation_size('"weir".semaphores'))
    / current_setting('block_size')::bigint];
end $$;

insert into "weir".migrations (version) values (4);
