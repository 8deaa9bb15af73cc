-- weir 2: decisions about buckets and windows. backend.Definition.Decide is the same in Go.

-- The most that can be missing of a key, and the most that is remembered as refunded: rate.MaxDebt.
create function "weir".max_debt() returns bigint language sql immutable as 'select 2251799813685248::bigint';

-- What so many lines bring to a bucket or fixed window, up to more than can be missing and refunded. The comparison divides,
-- because the product can overflow.
create function "weir".brought(lines bigint, refill bigint) returns bigint language sql immutable as $$
  select case when lines <= 0 then 0
    when refill = 0 or lines > 4503599627370496 / refill then 4503599627370496
    else lines * refill end
$$;

-- requests: five numbers for each: op + 8 (if previous) + 16 (block), min, max, line and taken of the receipt
-- returns:  0, 0, 0                                                                                 locked, with skip_locked
--           1, now, line, missing, floor, refunded, a number for each request, then taken           decided
--           2, now, version                                                                         outdated definition; now may be 0
--           3, now, line, missing, floor, refunded, version, kind, anchor, period, refill, segments, then taken
--                                                                                                   outdated state
--           6, now, 0                                                                               other window
--
-- A calendar is decided as a sliding window of one segment. Its anchor and period are those of one window, and d_segments is the
-- line. A window that has begun does not end by a step into the one before: see rate.Schedule.AdvanceTo.
--
-- With read_first, the row is read without a lock, so that a rejection locks and writes nothing. The row can then be
-- older than what other sessions have committed meanwhile. A rejection is right nevertheless: it counts as made before
-- their changes. If something is to be written, or without read_first, the row is locked. The clock is read after the
-- lock, so that time does not run backwards within a row. With skip_locked, a row that another session has locked is not
-- waited for, so that it does not hold up the other keys of the statement.
--
-- Statements that call functions turn sequential scans off, because the session would keep a plan that was made while a table was
-- small.
create function "weir".decide(a_name text, a_key bytea, d_version bigint, d_kind bigint, d_permits bigint, d_anchor bigint,
  d_period bigint, d_refill bigint, d_segments bigint, read_first boolean, skip_locked boolean, requests bigint[]) returns bigint[]
language plpgsql volatile as $$
<<vars>>
declare
  calendar constant boolean := d_kind = 5;
  sliding constant boolean := d_kind = 3 or calendar;
  window_line constant bigint := d_segments;
  -- The row.
  found_row boolean; row_id tid; version bigint; line bigint; missing bigint; floor bigint; refunded bigint; taken bigint[];
  -- The decision.
  t bigint; newest bigint; line_now bigint; lines bigint; brought bigint; stays boolean; kept bigint[]; changed boolean; granted bigint[]; previous bigint; outdated bigint[];
  -- One request, which begins at requests[i].
  i int; op bigint; most bigint; g bigint; j int; part bigint;
begin
  if calendar then d_segments := 1; end if;
  loop
    if read_first then
      select s.version, s.line, s.missing, s.floor, coalesce(s.refunded, 0), s.taken into version, line, missing, floor, refunded, taken
        from "weir".states s where s.name = a_name and s.key = a_key;
    elsif skip_locked then
      select s.ctid, s.version, s.line, s.missing, s.floor, coalesce(s.refunded, 0), s.taken into row_id, version, line, missing, floor, refunded, taken
        from "weir".states s where s.name = a_name and s.key = a_key for no key update skip locked;
      if not found and exists (select from "weir".states s where s.name = a_name and s.key = a_key) then return array[0, 0, 0]; end if;
    else
      select s.ctid, s.version, s.line, s.missing, s.floor, coalesce(s.refunded, 0), s.taken into row_id, version, line, missing, floor, refunded, taken
        from "weir".states s where s.name = a_name and s.key = a_key for no key update;
    end if;
    found_row := found;
    newest := (select d.version from "weir".definitions d where d.name = a_name and d.version > d_version); -- after the wait for the lock
    if newest is not null then return array[2, 0, newest]; end if;
    t := "weir".clock();
    line_now := (t - d_anchor) / d_period;
    if (t - d_anchor) % d_period < 0 then line_now := line_now - 1; end if;
    if calendar and line_now <> window_line then return array[6, t, 0]; end if;

    changed := false; stays := false;
    if not found_row then
      missing := 0; floor := 0; refunded := 0; taken := null;
    elsif version <> d_version then
      if version > d_version then return array[2, t, version]; end if;
      select array[3, t, s.line, s.missing, s.floor, coalesce(s.refunded, 0), s.version, s.kind, s.anchor, s.period, s.refill, s.segments] || s.taken into outdated
        from "weir".states s where s.name = a_name and s.key = a_key and s.version < d_version;
      continue when not found; -- it has been replaced since
      return outdated;
    else
      stays := calendar and line = line_now + 1 and taken is not null;
      if stays then line_now := line; end if;
      lines := line_now - line;
      changed := lines < 0; -- the clock has stepped back, so the row needs the new line
      if sliding then
        kept := null; missing := 0;
        for j in 1 .. coalesce(array_length(taken, 1), 0) by 2 loop
          if taken[j] + least(lines, 0) > line_now - d_segments then
            kept := array_append(array_append(kept, taken[j] + least(lines, 0)), taken[j+1]);
            missing := missing + taken[j+1];
          end if;
        end loop;
        taken := kept;
      elsif lines > 0 then
        brought := "weir".brought(lines, d_refill);
        if floor > 0 or refunded > 0 then
          floor := greatest(floor - brought, 0);
          refunded := greatest(refunded - greatest(brought - missing, 0), 0);
        end if;
        missing := greatest(missing - brought, 0);
      end if;
    end if;

    -- A shortcut for a single request that is rejected: under overload, most are.
    if d_permits - missing < greatest(requests[2], 1) and requests[1] & 7 = 0 and requests[6] is null and not changed and taken is null then
      return array[1, t, line_now, missing, floor, refunded, -1];
    end if;

    previous := 0; granted := '{}'; i := 1;
    while requests[i] is not null loop
      op := requests[i];
      if op & 8 > 0 and previous = -1 then
        granted := array_append(granted, -1::bigint);
        i := i + 5;
        continue;
      end if;
      most := greatest(requests[i+2], 0);
      op := op & 7;
      if op = 0 then -- backend.OpTake
        if d_permits - missing < greatest(requests[i+1], 1) then
          g := -1;
        else
          g := least(most, d_permits - missing);
          missing := missing + g;
          if requests[i] & 16 > 0 and d_refill > 0 and floor <> missing then floor := missing; changed := true; end if;
        end if;
      elsif op = 1 then -- backend.OpCharge
        g := greatest(least(most, "weir".max_debt() - missing), 0);
        missing := missing + g;
      elsif sliding and op = 4 then -- backend.OpGiveBack: of the newest segment while permits are owed, then of the oldest
        g := 0;
        while g < least(most, missing + g) loop
          j := case when missing > d_permits then array_length(taken, 1) else 2 end;
          part := least(most - g, taken[j], case when missing > d_permits then missing - d_permits else missing end);
          taken[j] := taken[j] - part;
          if taken[j] = 0 then taken := nullif(taken[:j-2] || taken[j+1:], '{}'); end if;
          missing := missing - part;
          g := g + part;
        end loop;
      elsif sliding then -- backend.OpRefund, backend.OpReturnBlock
        g := 0;
        for j in 1 .. coalesce(array_length(taken, 1), 0) by 2 loop
          continue when taken[j] <> requests[i+3];
          g := least(most, taken[j+1]);
          taken[j+1] := taken[j+1] - g;
          if taken[j+1] = 0 then taken := nullif(taken[:j-1] || taken[j+2:], '{}'); end if;
          exit;
        end loop;
        missing := missing - g;
      elsif op = 3 and d_refill > 0 then -- backend.OpReturnBlock
        g := 0;
        if requests[i+4] - "weir".brought(line_now - requests[i+3], d_refill) = missing + refunded then g := least(most, missing); end if;
        missing := missing - g;
        floor := least(floor, missing);
      else -- backend.OpRefund, backend.OpGiveBack
        g := least(most, missing - floor, "weir".max_debt() - refunded);
        if op <> 4 and line_now > requests[i+3] then
          g := least(g, requests[i+4] - "weir".brought(line_now - requests[i+3], d_refill) - refunded);
        end if;
        g := greatest(g, 0);
        missing := missing - g;
        refunded := refunded + g;
      end if;
      if g > 0 then
        changed := true;
        if sliding and op < 2 then
          if taken[array_length(taken, 1) - 1] = line_now then
            taken[array_length(taken, 1)] := taken[array_length(taken, 1)] + g;
          else
            taken := coalesce(taken, '{}') || line_now || g;
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
      if found_row then
        update "weir".states s set line = line_now, missing = vars.missing, floor = vars.floor, written = t,
            refunded = nullif(vars.refunded, 0), taken = vars.taken,
            anchor = case when stays then s.anchor else d_anchor end, period = case when stays then s.period else d_period end
          where s.ctid = row_id;
      else
        insert into "weir".states values (a_name, a_key, d_version, d_kind, d_anchor, d_period, d_refill, d_segments,
            line_now, missing, floor, t, nullif(refunded, 0), taken)
          on conflict do nothing;
        if not found then -- another session was first
          read_first := false;
          continue;
        end if;
      end if;
    end if;
    return array[1, t, line_now, missing, floor, refunded] || granted || taken;
  end loop;
end $$;

-- Takes of several keys, each in a bucket or fixed window, by one upsert, which costs about half as much as decide. For each key it
-- takes the most that is asked for and writes the row. decide answers for a key for which the upsert does nothing:
--
--   - too few permits are available,
--   - the row is of another version of the definition, or the definition has another version,
--   - the server's clock has stepped back.
--
-- The upsert has locked the rows of these keys, in the order of the arrays as all statements do. It has not written them, which their
-- xmin shows.
--
-- The clock is read before the rows are locked. If another session has written a row meanwhile, the row has a later time, and the
-- upsert decides by the time in the row. If the statement's own time is then earlier than the row's or the clock's by more than 0.1 s,
-- the clock has stepped back or the wait was long; then decide reads the clock again. Otherwise statements that have waited for one
-- lock would each decide in a window that is past.
--
-- Each definition is read by a subquery of its own, so that the rows are locked in the order of the arrays. Lines are counted from
-- before 1970, so that no negative number is divided. The arrays are subqueries, because the server plans the upsert again for each
-- call if it sees how long they are.
--
-- returns: first, in order, 1, now, line, missing, floor, refunded for each key that the upsert has written. For each other key, its
--          number from 1 times -1, and the answer of decide, or 0, 0, 0 if the version of its definition is not stored.
create function "weir".take(names text[], keys bytea[], versions bigint[], lowest bigint[], highest bigint[], blocks boolean[])
returns setof bigint[] language plpgsql volatile as $$
declare taken bigint;
begin
  return query
    insert into "weir".states as s (name, key, version, kind, anchor, period, refill, segments, line, missing, floor, written)
      select u.name, u.key, d.version, d.kind, d.anchor, d.period, d.refill, 0,
          (c.t - d.anchor + d.before * d.period) / d.period - d.before, u.most, case when u.block and d.refill > 0 then u.most else 0 end, c.t
        from (select "weir".clock() as t) c,
          unnest((select names), (select keys), (select versions), (select highest), (select blocks)) u(name, key, version, most, block),
          lateral (select d.*, greatest((d.anchor + d.period - 1) / d.period, 0) as before
            from "weir".definitions d where d.name = u.name and d.version = u.version and d.permits >= u.most limit 1) d
      on conflict (name, key) do update set line = greatest(s.line, excluded.line), written = greatest(s.written, excluded.written),
          missing = greatest(s.missing - "weir".brought(excluded.line - s.line, excluded.refill), 0) + excluded.missing,
          floor = case when excluded.floor > 0 then greatest(s.missing - "weir".brought(excluded.line - s.line, excluded.refill), 0) + excluded.missing
            when s.floor > 0 then greatest(s.floor - "weir".brought(excluded.line - s.line, excluded.refill), 0) else 0 end,
          refunded = case when s.refunded > 0
            then nullif(greatest(s.refunded - greatest("weir".brought(excluded.line - s.line, excluded.refill) - s.missing, 0), 0), 0) end
        where s.version = excluded.version and excluded.written >= greatest(s.written, "weir".clock()) - 100000
          and s.missing - "weir".brought(excluded.line - s.line, excluded.refill) + excluded.missing <=
            (select d.permits from "weir".definitions d where d.name = excluded.name and d.version = excluded.version)
      returning array[1, s.written, s.line, s.missing, s.floor, coalesce(s.refunded, 0)];
  get diagnostics taken = row_count;
  if taken < cardinality(names) then
    return query
      select array[-u.i] || coalesce((
          select "weir".decide(u.name, u.key, u.version, d.kind, d.permits, d.anchor, d.period, d.refill, d.segments, true, false,
              array[u.block::int * 16, u.least, u.most, 0, 0])
            from "weir".definitions d where d.name = u.name and d.version >= u.version), array[0, 0, 0::bigint])
        from unnest((select names), (select keys), (select versions), (select lowest), (select highest), (select blocks))
          with ordinality u(name, key, version, least, most, block, i)
        where not exists (select from "weir".states s where s.name = u.name and s.key = u.key and s.xmin = pg_current_xact_id_if_assigned()::xid)
        order by u.i;
  end if;
end $$;

-- Writes n (line, missing, floor, refunded, version, kind, anchor, period, refill, segments) and new_taken if the row is
-- still old and old_taken. written becomes the time of the line. The result is null if the row is locked, with skip_locked.
create function "weir".replace(a_name text, a_key bytea, skip_locked boolean, old bigint[], old_taken bigint[], n bigint[], new_taken bigint[])
returns boolean language plpgsql volatile as $$
begin
  if skip_locked then
    perform from "weir".states s where s.name = a_name and s.key = a_key for no key update skip locked;
    if not found and exists (select from "weir".states s where s.name = a_name and s.key = a_key) then return null; end if;
  end if;
  update "weir".states s set
      line = n[1], missing = n[2], floor = n[3], refunded = nullif(n[4], 0), version = n[5], kind = n[6], anchor = n[7], period = n[8],
      refill = n[9], segments = n[10], taken = nullif(new_taken, '{}'),
      written = least(greatest(n[7] + n[1]::numeric * n[8], -9e18), 9e18)
    where s.name = a_name and s.key = a_key and coalesce(s.taken, '{}') = old_taken
      and array[s.line, s.missing, s.floor, coalesce(s.refunded, 0), s.version, s.kind, s.anchor, s.period, s.refill, s.segments] = old;
  return found;
end $$;

insert into "weir".migrations (version) values (2);
