-- weir 3: the leases of concurrency limiters.
--
-- An acquisition locks the key's row, so that those of one key come one after the other. A release or a renewal touches
-- nothing but the row of its lease: it never waits for an acquisition, and what has ended is counted
-- by the next acquisition.

-- The lock between those who begin to wait and those who release: see hold.
create function "weir".doorbell(a_name text, a_key bytea) returns bigint language sql immutable as $$
  select hashtextextended('"weir"' || a_name || encode(a_key, 'hex'), 0)
$$;

-- Drops the leases of a key that have ended, and returns the sum of their permits. The key's row must be locked.
-- A lease that another session is just releasing or renewing is left to the next call.
create function "weir".fold(a_name text, a_key bytea, t bigint) returns bigint
language plpgsql volatile set enable_seqscan = off as $$
declare freed bigint;
begin
  with ended as (
    select l.id from "weir".leases l where l.name = a_name and l.key = a_key and l.until <= t for update skip locked
  ), gone as (
    delete from "weir".leases l using ended e where l.name = a_name and l.key = a_key and l.id = e.id returning l.permits
  )
  select coalesce(sum(permits), 0) into freed from gone;
  return freed;
end $$;

-- How many µs from t on the first lease of a key ends; 0: there is none.
create function "weir".next_end(a_name text, a_key bytea, t bigint) returns bigint
language plpgsql volatile set enable_seqscan = off as $$
declare ends bigint;
begin
  select l.until into ends from "weir".leases l
    where l.name = a_name and l.key = a_key and l.until > t order by l.name, l.key, l.until limit 1;
  return coalesce(ends - t, 0);
end $$;

-- Acquisitions of one key, in their order.
--
-- n:       version, permits of the limiter, waiting
-- wants:   permits and TTL of each
-- returns: outcome, ok, in use, next end, fence, version of each
create function "weir".hold(a_name text, a_key bytea, n bigint[], ids bytea[], wants bigint[]) returns bigint[]
language plpgsql volatile set enable_seqscan = off as $$
declare
  most constant bigint := n[2];
  bell constant bigint := 10000000; -- for how long releases send notices
  t bigint := "weir".clock();
  v bigint; used bigint; last bigint; waits bigint; dead bigint; same boolean; rings boolean;
  answers bigint[] := '{}'; p bigint; ends bigint; old bigint;
begin
  -- What the snapshot shows: a rejection, or the answer to a question, needs no lock and writes nothing.
  select s.version, s.in_use, s.waiting,
      (select coalesce(sum(l.permits), 0) from "weir".leases l where l.name = a_name and l.key = a_key and l.until <= t),
      exists (select from "weir".leases l where l.name = a_name and l.key = a_key and l.id = any (ids) and l.until > t)
    into v, used, waits, dead, same
    from "weir".semaphores s where s.name = a_name and s.key = a_key;
  used := coalesce(used - dead, 0);
  rings := n[3] = 1 and coalesce(waits, 0) < t + bell / 2;
  for i in 1 .. array_length(ids, 1) loop
    p := wants[2*i-1];
    if v > n[1] then
      answers := answers || array[2, 0, 0, 0, 0, v];
    elsif p = 0 and used < most then
      answers := answers || array[1, 1, used, 0, 0, 0];
    elsif used + greatest(p, 1) > most and not rings and (p = 0 or v = n[1] and not same) then
      ends := coalesce(ends, "weir".next_end(a_name, a_key, t));
      answers := answers || array[1, 0, used, ends, 0, 0];
    else
      answers := null;
      exit;
    end if;
  end loop;
  if answers is not null then return answers; end if;

  loop
    select s.version, s.in_use, s.fence, s.waiting into v, used, last, waits
      from "weir".semaphores s where s.name = a_name and s.key = a_key for no key update;
    exit when found;
    insert into "weir".semaphores values (a_name, a_key, n[1], 0, 0, 0) on conflict do nothing;
  end loop;
  if v > n[1] then
    for i in 1 .. array_length(ids, 1) loop answers := answers || array[2, 0, 0, 0, 0, v]; end loop;
    return answers;
  end if;
  -- A caller that begins to wait lets the releases under way finish first, and is then either granted what they
  -- brought, or on record before the next release looks for waiting callers.
  if rings then perform pg_advisory_xact_lock("weir".doorbell(a_name, a_key)); end if;
  t := "weir".clock();
  if rings then waits := t + bell; end if;
  used := used - "weir".fold(a_name, a_key, t);
  dead := "weir".dead(a_name, a_key, t);
  same := exists (select from "weir".leases l where l.name = a_name and l.key = a_key and l.id = any (ids) and l.until > t);
  ends := null;

  for i in 1 .. array_length(ids, 1) loop
    p := wants[2*i-1];
    if p > 0 and same then -- sent again, because the answer was lost?
      update "weir".leases l set until = t + wants[2*i]
        where l.name = a_name and l.key = a_key and l.id = ids[i] and l.until > t returning l.fence into old;
      if found then
        answers := answers || array[1, 1, used - dead, 0, old, 0];
        continue;
      end if;
    end if;
    if p > 0 and used + p <= most then
      insert into "weir".leases values (a_name, a_key, ids[i], p, greatest(last + 1, t), t + wants[2*i])
        on conflict (name, key, id) do nothing;
      if found then
        last := greatest(last + 1, t); -- by the clock, so that fences rise also after the row was swept away
        used := used + p;
        ends := null;
        answers := answers || array[1, 1, used - dead, 0, last, 0];
        continue;
      end if; -- another session is just ending the lease with this ID
    end if;
    ends := coalesce(ends, "weir".next_end(a_name, a_key, t));
    answers := answers || array[1, (p = 0 and used - dead < most)::int, used - dead, ends, 0, 0];
  end loop;
  update "weir".semaphores s set version = n[1], in_use = used, fence = last, waiting = waits
    where s.name = a_name and s.key = a_key;
  return answers;
end $$;

-- The permits of the leases that have ended and are still there.
create function "weir".dead(a_name text, a_key bytea, t bigint) returns bigint
language plpgsql volatile set enable_seqscan = off as $$
begin
  return (select coalesce(sum(l.permits), 0) from "weir".leases l where l.name = a_name and l.key = a_key and l.until <= t);
end $$;

create function "weir".renew(a_name text, a_key bytea, a_id bytea, a_fence bigint, ttl bigint) returns boolean
language plpgsql volatile set enable_seqscan = off as $$
declare t bigint := "weir".clock();
begin
  update "weir".leases l set until = t + ttl
    where l.name = a_name and l.key = a_key and l.id = a_id and (a_fence = 0 or l.fence = a_fence) and l.until > t;
  return found;
end $$;

-- tell: whether a caller that can be notified may wait. What is lost with the server ends with its TTL, so this one
-- may commit asynchronously.
create function "weir".release(a_name text, a_key bytea, a_id bytea, a_fence bigint, async boolean, tell boolean) returns boolean
language plpgsql volatile set enable_seqscan = off as $$
declare t bigint;
begin
  if tell then perform pg_advisory_xact_lock_shared("weir".doorbell(a_name, a_key)); end if;
  if async then perform set_config('synchronous_commit', 'off', true); end if;
  t := "weir".clock();
  update "weir".leases l set until = 0
    where l.name = a_name and l.key = a_key and l.id = a_id and (a_fence = 0 or l.fence = a_fence) and l.until > t;
  if not found then return false; end if;
  if tell then
    perform "weir".tell('r', a_name, a_key)
      from "weir".semaphores s where s.name = a_name and s.key = a_key and s.waiting > t;
  end if;
  return true;
end $$;

create function "weir".tell(what text, a_name text, a_key bytea) returns void language sql volatile as $$
  select pg_notify('weir:"weir"', what || translate(
    encode(convert_to(a_name, 'UTF8'), 'base64') || '.' || encode(a_key, 'base64'), E'\n', ''))
$$;

insert into "weir".migrations (version) values (3);
