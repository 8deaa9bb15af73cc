-- weir 2: decisions about buckets and windows. backend.Definition.Decide is the same in Go.

-- n:       async, read first, version, kind, permits, anchor, period, refill, segments, then five numbers for each request:
--          op + 4 (if previous) + 8 (block), min, max, tick and missing of the receipt
-- returns: 1, now, tick, missing, refund floor, a number for each request, then taken               decided
--          2, now, version                                                                          outdated definition
--          3, now, tick, missing, refund floor, version, kind, anchor, period, refill, segments, then taken
--                                                                                                   outdated state
--
-- With read first, the row is read without a lock, so that a rejection locks and writes nothing. The row can then be
-- older than what other sessions have committed meanwhile. A rejection is right nevertheless: it counts as made before
-- their changes. If something is to be written, or without read first, the row is locked. The clock is read after the
-- lock, so that time does not run backwards within a row.
--
-- There is no sequential scan, because the session would keep a plan that was made while the table was small.
create function "weir".decide(a_name text, a_key bytea, n bigint[]) returns bigint[]
language plpgsql volatile set enable_seqscan = off as $$
<<vars>>
declare
  d_version constant bigint := n[3];
  d_permits constant bigint := n[5];
  d_anchor  constant bigint := n[6];
  d_period  constant bigint := n[7];
  d_refill  constant bigint := n[8];
  sliding   constant boolean := n[4] = 3;
  read_first boolean := n[2] = 1;
  -- The row.
  found_row boolean; row_id tid; version bigint; tick bigint; missing bigint; refund_floor bigint; taken bigint[];
  -- The decision.
  t bigint; tick_now bigint; ticks bigint; kept bigint[]; changed boolean; granted bigint[]; previous bigint; outdated bigint[];
  -- One request, which begins at n[i].
  i int; op bigint; most bigint; still_missing bigint; g bigint;
begin
  loop
    if read_first then
      select s.version, s.tick, s.missing, s.refund_floor, s.taken into version, tick, missing, refund_floor, taken
        from "weir".states s where s.name = a_name and s.key = a_key;
    else
      select s.ctid, s.version, s.tick, s.missing, s.refund_floor, s.taken into row_id, version, tick, missing, refund_floor, taken
        from "weir".states s where s.name = a_name and s.key = a_key for no key update;
    end if;
    found_row := found;
    t := "weir".clock();
    tick_now := (t - d_anchor) / d_period;
    if (t - d_anchor) % d_period < 0 then tick_now := tick_now - 1; end if;

    changed := false;
    if not found_row then
      missing := 0; refund_floor := 0; taken := null;
    elsif version <> d_version then
      if version > d_version then return array[2, t, version]; end if;
      select array[3, t, s.tick, s.missing, s.refund_floor, s.version, s.kind, s.anchor, s.period, s.refill, s.segments] || s.taken into outdated
        from "weir".states s where s.name = a_name and s.key = a_key and s.version < d_version;
      continue when not found; -- it has been replaced since
      return outdated;
    else
      ticks := tick_now - tick;
      changed := ticks < 0; -- the clock has stepped back, so the row needs the new tick
      if sliding then
        kept := null; missing := 0;
        for j in 1 .. coalesce(array_length(taken, 1), 0) by 2 loop
          if taken[j] + least(ticks, 0) > tick_now - n[9] then
            kept := array_append(array_append(kept, taken[j] + least(ticks, 0)), taken[j+1]);
            missing := missing + taken[j+1];
          end if;
        end loop;
        taken := kept;
      elsif ticks > 0 then
        -- The comparison divides, because ticks * d_refill can overflow.
        missing := case when d_refill = 0 or ticks > missing / d_refill then 0 else missing - ticks * d_refill end;
        if refund_floor > 0 then
          refund_floor := case when d_refill = 0 or ticks > refund_floor / d_refill then 0 else refund_floor - ticks * d_refill end;
        end if;
      end if;
    end if;

    -- A shortcut for a single request that is rejected: under overload, most are.
    if d_permits - missing < greatest(n[11], 1) and n[10] & 3 = 0 and n[15] is null and not changed and taken is null then
      return array[1, t, tick_now, missing, refund_floor, -1];
    end if;

    previous := 0; granted := '{}'; i := 10;
    while n[i] is not null loop
      op := n[i];
      if op & 4 > 0 and previous = -1 then
        granted := array_append(granted, -1::bigint);
        i := i + 5;
        continue;
      end if;
      most := n[i+2];
      case op & 3
      when 0 then -- backend.OpTake
        if d_permits - missing < greatest(n[i+1], 1) then
          g := -1;
        else
          g := greatest(least(most, d_permits - missing), 0);
          missing := missing + g;
          if op & 8 > 0 and d_refill > 0 and refund_floor <> missing then refund_floor := missing; changed := true; end if;
        end if;
      when 1 then -- backend.OpCharge
        g := greatest(least(most, 2251799813685248 - missing), 0);
        missing := missing + g;
      else -- backend.OpRefund, backend.OpReturnBlock
        g := 0;
        if sliding then
          for j in 1 .. coalesce(array_length(taken, 1), 0) by 2 loop
            continue when taken[j] <> n[i+3];
            g := greatest(least(most, taken[j+1]), 0);
            taken[j+1] := taken[j+1] - g;
            if taken[j+1] = 0 then taken := nullif(taken[:j-1] || taken[j+2:], '{}'); end if;
            exit;
          end loop;
        else
          still_missing := n[i+4];
          ticks := tick_now - n[i+3];
          if ticks > 0 then
            still_missing := case when d_refill = 0 or still_missing <= 0 or ticks > still_missing / d_refill then 0 else still_missing - ticks * d_refill end;
          end if;
          if op & 3 = 2 or d_refill = 0 then
            g := greatest(least(most, still_missing, missing - refund_floor), 0);
          elsif still_missing = missing then
            g := greatest(least(most, missing), 0);
            refund_floor := least(refund_floor, missing - g);
          end if;
        end if;
        missing := missing - g;
        changed := changed or g > 0;
      end case;
      if op & 3 < 2 and g > 0 then
        changed := true;
        if sliding then
          if taken[array_length(taken, 1) - 1] = tick_now then
            taken[array_length(taken, 1)] := taken[array_length(taken, 1)] + g;
          else
            taken := coalesce(taken, '{}') || tick_now || g;
          end if;
        end if;
      end if;
      granted := array_append(granted, g);
      previous := g;
      i := i + 5;
    end loop;

    if changed and read_first and found_row then
      read_first := false;
      continue;
    end if;
    if changed then
      if n[1] = 1 then perform set_config('synchronous_commit', 'off', true); end if;
      if found_row then
        update "weir".states s set tick = tick_now, missing = vars.missing, refund_floor = vars.refund_floor, written = t, taken = vars.taken
          where s.ctid = row_id;
      else
        insert into "weir".states values (a_name, a_key, d_version, n[4], n[6], d_period, d_refill, n[9], tick_now, missing, refund_floor, t, taken)
          on conflict do nothing;
        if not found then -- another session was first
          read_first := false;
          continue;
        end if;
      end if;
    end if;
    return array[1, t, tick_now, missing, refund_floor] || granted || taken;
  end loop;
end $$;

-- Writes n (tick, missing, refund floor, version, kind, anchor, period, refill, segments) and new_taken if the row is
-- still old and old_taken. written becomes the time of the tick.
create function "weir".replace(a_name text, a_key bytea, async boolean, old bigint[], old_taken bigint[], n bigint[], new_taken bigint[])
returns boolean language plpgsql volatile set enable_seqscan = off as $$
begin
  if async then perform set_config('synchronous_commit', 'off', true); end if;
  update "weir".states s set
      tick = n[1], missing = n[2], refund_floor = n[3], version = n[4], kind = n[5], anchor = n[6], period = n[7], refill = n[8], segments = n[9],
      written = least(greatest(n[6] + n[1]::numeric * n[7], -9e18), 9e18), taken = nullif(new_taken, '{}')
    where s.name = a_name and s.key = a_key and coalesce(s.taken, '{}') = old_taken
      and s.tick = old[1] and s.missing = old[2] and s.refund_floor = old[3] and s.version = old[4] and s.kind = old[5]
      and s.anchor = old[6] and s.period = old[7] and s.refill = old[8] and s.segments = old[9];
  return found;
end $$;

insert into "weir".migrations (version) values (2);
