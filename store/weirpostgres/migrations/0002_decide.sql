-- weir 2: decisions about buckets and windows. What they are is written in Go: backend.Definition.Decide.

-- n:       async, look, version, kind, permits, anchor, period, refill, segments, then five numbers for each request:
--          op + 4 (if previous) + 8 (block), min, max, tick and missing of the receipt
-- returns: 1, now, line, missing, held, a number for each request, then taken  decided
--          2, now, version                                                   outdated
--          3, now, line, missing, held, version, kind, anchor, period, refill, segments, then taken    old state
--
-- With look the row is first read as the snapshot shows it: a key that has nothing left is answered without a
-- lock and without writing, since what was exhausted can become free meanwhile only by time, a refund, or other
-- limits, and then this question came before that. The clock is read after the row is locked, so that time does
-- not run backwards in a row. No sequential scan: a plan made while the table is small would keep it.
create function "weir".decide(a_name text, a_key bytea, n bigint[]) returns bigint[]
language plpgsql volatile set enable_seqscan = off as $$
<<ours>>
declare
  d_version  constant bigint := n[3];
  d_permits  constant bigint := n[5];
  d_period   constant bigint := n[7];
  d_refill   constant bigint := n[8];
  sliding    constant boolean := n[4] = 3;
  look     boolean := n[2] = 1;
  there    boolean; changed boolean;
  place tid; v bigint; line bigint; missing bigint; held bigint; taken bigint[]; kept bigint[]; -- the row
  t bigint; here bigint; lines bigint; previous bigint; granted bigint[]; -- now
  op bigint; most bigint; mark bigint; g bigint; i int;
begin
  loop
    if look then
      select s.version, s.line, s.missing, s.held, s.taken into v, line, missing, held, taken
        from "weir".states s where s.name = a_name and s.key = a_key;
    else
      select s.ctid, s.version, s.line, s.missing, s.held, s.taken into place, v, line, missing, held, taken
        from "weir".states s where s.name = a_name and s.key = a_key for no key update;
    end if;
    there := found;
    t := "weir".clock();
    here := (t - n[6]) / d_period;
    if (t - n[6]) % d_period < 0 then here := here - 1; end if;

    changed := false;
    if not there then
      missing := 0; held := 0; taken := null;
    elsif v <> d_version then
      if v > d_version then return array[2, t, v]; end if;
      select array[3, t, s.line, s.missing, s.held, s.version, s.kind, s.anchor, s.period, s.refill, s.segments] || s.taken into kept
        from "weir".states s where s.name = a_name and s.key = a_key and s.version < d_version;
      continue when not found; -- replaced since
      return kept;
    else
      lines := here - line;
      changed := lines < 0; -- the server's clock was set back, and the row has to be
      if sliding then
        kept := null; missing := 0;
        for j in 1 .. coalesce(array_length(taken, 1), 0) by 2 loop
          if taken[j] + least(lines, 0) > here - n[9] then
            kept := array_append(array_append(kept, taken[j] + least(lines, 0)), taken[j+1]);
            missing := missing + taken[j+1];
          end if;
        end loop;
        taken := kept;
      elsif lines > 0 then
        -- Divided, not multiplied: nothing can overflow.
        missing := case when d_refill = 0 or lines > missing / d_refill then 0 else missing - lines * d_refill end;
        if held > 0 then
          held := case when d_refill = 0 or lines > held / d_refill then 0 else held - lines * d_refill end;
        end if;
      end if;
    end if;

    -- One question that is rejected: what is asked most when much is asked, so it is worth a short cut.
    if d_permits - missing < greatest(n[11], 1) and n[10] & 3 = 0 and n[15] is null and not changed and taken is null then
      return array[1, t, here, missing, held, -1];
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
      when 0 then
        if d_permits - missing < greatest(n[i+1], 1) then
          g := -1;
        else
          g := greatest(least(most, d_permits - missing), 0);
          missing := missing + g;
          if op & 8 > 0 and d_refill > 0 and held <> missing then held := missing; changed := true; end if;
        end if;
      when 1 then
        g := greatest(least(most, 2251799813685248 - missing), 0);
        missing := missing + g;
      else
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
          mark := n[i+4]; -- what of the receipt is still unpaid
          lines := here - n[i+3];
          if lines > 0 then
            mark := case when d_refill = 0 or mark <= 0 or lines > mark / d_refill then 0 else mark - lines * d_refill end;
          end if;
          if op & 3 = 2 or d_refill = 0 then
            g := greatest(least(most, mark, missing - held), 0);
          elsif mark = missing then
            g := greatest(least(most, missing), 0);
            held := least(held, missing - g);
          end if;
        end if;
        missing := missing - g;
        changed := changed or g > 0;
      end case;
      if op & 3 < 2 and g > 0 then
        changed := true;
        if sliding then
          if taken[array_length(taken, 1) - 1] = here then
            taken[array_length(taken, 1)] := taken[array_length(taken, 1)] + g;
          else
            taken := coalesce(taken, '{}') || here || g;
          end if;
        end if;
      end if;
      granted := array_append(granted, g);
      previous := g;
      i := i + 5;
    end loop;

    if changed and look and there then
      look := false;
      continue;
    end if;
    if changed then
      if n[1] = 1 then perform set_config('synchronous_commit', 'off', true); end if;
      if there then
        update "weir".states s set line = here, missing = ours.missing, held = ours.held, at = t, taken = ours.taken where s.ctid = place;
      else
        insert into "weir".states values (a_name, a_key, d_version, n[4], n[6], d_period, d_refill, n[9], here, missing, held, t, taken)
          on conflict do nothing;
        if not found then -- another session was first
          look := false;
          continue;
        end if;
      end if;
    end if;
    return array[1, t, here, missing, held] || granted || taken;
  end loop;
end $$;

-- Writes n (line, missing, held, version, kind, anchor, period, refill, segments) and taken, if the row is
-- what old and old_taken say. It is as if that had been written when its line began.
create function "weir".replace(a_name text, a_key bytea, async boolean, old bigint[], old_taken bigint[], n bigint[], new_taken bigint[])
returns boolean language plpgsql volatile set enable_seqscan = off as $$
begin
  if async then perform set_config('synchronous_commit', 'off', true); end if;
  update "weir".states s set
      line = n[1], missing = n[2], held = n[3], version = n[4], kind = n[5], anchor = n[6], period = n[7], refill = n[8], segments = n[9],
      at = least(greatest(n[6] + n[1]::numeric * n[7], -9e18), 9e18), taken = nullif(new_taken, '{}')
    where s.name = a_name and s.key = a_key and coalesce(s.taken, '{}') = old_taken
      and s.line = old[1] and s.missing = old[2] and s.held = old[3] and s.version = old[4] and s.kind = old[5]
      and s.anchor = old[6] and s.period = old[7] and s.refill = old[8] and s.segments = old[9];
  return found;
end $$;

insert into "weir".migrations (version) values (2);
