-- weir 3: the leases of concurrency limiters.
--
-- Acquire locks the row of the key in semaphores, so that its calls for one key are decided one after the other. A
-- release or a renewal changes only the row of its lease, and never waits for an Acquire. The next Acquire subtracts the
-- permits of expired leases from in_use.

-- The number of the advisory lock that acquire and release take for a key. See acquire.
create function "weir".waiting_lock(a_name text, a_key bytea) returns bigint language sql immutable as $$
  select hashtextextended('"weir"' || a_name || encode(a_key, 'hex'), 0)
$$;

-- Deletes the expired leases of a key, and returns the sum of their permits. The key's row in semaphores must be locked. A
-- lease that another session is releasing or renewing is left to the next call.
create function "weir".delete_expired(a_name text, a_key bytea, t bigint) returns bigint
language plpgsql volatile as $$
declare freed bigint;
begin
  with expired as (
    select l.id from "weir".leases l where l.name = a_name and l.key = a_key and l.expires <= t for update skip locked
  ), deleted as (
    delete from "weir".leases l using expired e where l.name = a_name and l.key = a_key and l.id = e.id returning l.permits
  )
  select coalesce(sum(permits), 0) into freed from deleted;
  return freed;
end $$;

-- The permits of the expired leases of a key that are not deleted yet.
create function "weir".expired_permits(a_name text, a_key bytea, t bigint) returns bigint
language plpgsql volatile as $$
begin
  return (select coalesce(sum(l.permits), 0) from "weir".leases l where l.name = a_name and l.key = a_key and l.expires <= t);
end $$;

-- How many µs after t the first lease of a key expires; 0 if there is none.
create function "weir".next_expiry(a_name text, a_key bytea, t bigint) returns bigint
language plpgsql volatile as $$
declare first bigint;
begin
  select l.expires into first from "weir".leases l
    where l.name = a_name and l.key = a_key and l.expires > t order by l.name, l.key, l.expires limit 1;
  return coalesce(first - t, 0);
end $$;

-- Whether the clock has stepped back since the lease of a key that expires last was acquired or renewed. Then acquire
-- shortens the leases to their TTL from now. Otherwise the leases of an instance that has died would last longer by the
-- step.
create function "weir".stepped_back(a_name text, a_key bytea, t bigint) returns boolean
language plpgsql volatile as $$
begin
  return coalesce((select l.expires > t + l.ttl from "weir".leases l
    where l.name = a_name and l.key = a_key order by l.name desc, l.key desc, l.expires desc limit 1), false);
end $$;

-- Acquires leases of one key, in their order.
--
-- n:       version, permits of the limiter, whether a caller waits (0 or 1)
-- wants:   permits and TTL of each
-- returns: outcome, ok, in use, next expiry, fence, version of each. The outcome is 0 if the row of the key is locked, with
--          skip_locked: then it is not waited for.
create function "weir".acquire(a_name text, a_key bytea, skip_locked boolean, n bigint[], ids bytea[], wants bigint[]) returns bigint[]
language plpgsql volatile as $$
<<vars>>
declare
  permit_limit constant bigint := n[2];
  notify_for constant bigint := 10000000; -- for how long releases send notices
  t bigint := "weir".clock();
  v bigint; newest bigint; used bigint; last_fence bigint; notify_until bigint; expired bigint;
  repeated boolean; -- a lease with one of the IDs has not expired, so its request was sent again
  starts_waiting boolean; -- a caller waits, and releases send no notices yet
  stepped_back boolean; answers bigint[] := '{}'; p bigint; next_expiry bigint; old_fence bigint;
begin
  -- A rejection, or the answer to a request of 0 permits, needs no lock and no write. in_use and the expired leases are
  -- read by one query: a second one could see that another session has deleted expired leases.
  select s.version, s.in_use, s.notify_until,
      (select coalesce(sum(l.permits), 0) from "weir".leases l where l.name = a_name and l.key = a_key and l.expires <= t),
      exists (select from "weir".leases l where l.name = a_name and l.key = a_key and l.id = any (ids) and l.expires > t)
    into v, used, notify_until, expired, repeated
    from "weir".semaphores s where s.name = a_name and s.key = a_key;
  stepped_back := "weir".stepped_back(a_name, a_key, t);
  used := coalesce(used - expired, 0);
  newest := greatest(v, (select d.version from "weir".definitions d where d.name = a_name));
  starts_waiting := n[3] = 1 and coalesce(notify_until, 0) < t + notify_for / 2;
  for i in 1 .. array_length(ids, 1) loop
    p := wants[2*i-1];
    if newest > n[1] then
      answers := answers || array[2, 0, 0, 0, 0, newest];
    elsif stepped_back then
      answers := null;
      exit;
    elsif p = 0 and used < permit_limit then
      answers := answers || array[1, 1, used, 0, 0, 0];
    elsif used + greatest(p, 1) > permit_limit and not starts_waiting and (p = 0 or v = n[1] and not repeated) then
      next_expiry := coalesce(next_expiry, "weir".next_expiry(a_name, a_key, t));
      answers := answers || array[1, 0, used, next_expiry, 0, 0];
    else
      answers := null;
      exit;
    end if;
  end loop;
  if answers is not null then return answers; end if;

  loop
    if skip_locked then
      select s.version, s.in_use, s.fence, s.notify_until into v, used, last_fence, notify_until
        from "weir".semaphores s where s.name = a_name and s.key = a_key for no key update skip locked;
      exit when found;
      if exists (select from "weir".semaphores s where s.name = a_name and s.key = a_key) then
        return array_fill(0::bigint, array[6 * array_length(ids, 1)]);
      end if;
    else
      select s.version, s.in_use, s.fence, s.notify_until into v, used, last_fence, notify_until
        from "weir".semaphores s where s.name = a_name and s.key = a_key for no key update;
      exit when found;
    end if;
    insert into "weir".semaphores values (a_name, a_key, n[1], 0, 0, 0) on conflict do nothing;
  end loop;
  if v > n[1] then
    for i in 1 .. array_length(ids, 1) loop answers := answers || array[2, 0, 0, 0, 0, v]; end loop;
    return answers;
  end if;
  -- A caller that starts to wait lets the releases under way finish first. Then either it is granted the permits that
  -- they have freed, or notify_until is written before the next release reads it.
  if starts_waiting then perform pg_advisory_xact_lock("weir".waiting_lock(a_name, a_key)); end if;
  t := "weir".clock();
  if starts_waiting then notify_until := t + notify_for; end if;
  if "weir".stepped_back(a_name, a_key, t) then
    -- A lease that another session is renewing or releasing is left to that session.
    update "weir".leases l set expires = t + l.ttl from (
        select x.id from "weir".leases x where x.name = a_name and x.key = a_key and x.expires > t + x.ttl for update skip locked
      ) late where l.name = a_name and l.key = a_key and l.id = late.id;
    notify_until := least(notify_until, t + notify_for);
  end if;
  used := used - "weir".delete_expired(a_name, a_key, t);
  expired := "weir".expired_permits(a_name, a_key, t);
  repeated := exists (select from "weir".leases l where l.name = a_name and l.key = a_key and l.id = any (ids) and l.expires > t);
  next_expiry := null;

  for i in 1 .. array_length(ids, 1) loop
    p := wants[2*i-1];
    if p > 0 and repeated then
      update "weir".leases l set expires = t + wants[2*i], ttl = wants[2*i]
        where l.name = a_name and l.key = a_key and l.id = ids[i] and l.expires > t returning l.fence into old_fence;
      if found then
        answers := answers || array[1, 1, used - expired, 0, old_fence, 0];
        continue;
      end if;
    end if;
    if p > 0 and used + p <= permit_limit then
      insert into "weir".leases values (a_name, a_key, ids[i], p, greatest(last_fence + 1, t), t + wants[2*i], wants[2*i])
        on conflict (name, key, id) do nothing;
      if found then
        last_fence := greatest(last_fence + 1, t); -- at least t, so that fences grow even if sweep has deleted the row
        used := used + p;
        next_expiry := null;
        answers := answers || array[1, 1, used - expired, 0, last_fence, 0];
        continue;
      end if; -- another session is ending a lease with this ID
    end if;
    next_expiry := coalesce(next_expiry, "weir".next_expiry(a_name, a_key, t));
    answers := answers || array[1, (p = 0 and used - expired < permit_limit)::int, used - expired, next_expiry, 0, 0];
  end loop;
  update "weir".semaphores s set version = n[1], in_use = used, fence = last_fence, notify_until = vars.notify_until
    where s.name = a_name and s.key = a_key;
  return answers;
end $$;

create function "weir".renew(a_name text, a_key bytea, a_id bytea, a_fence bigint, ttl bigint) returns boolean
language plpgsql volatile as $$
declare t bigint := "weir".clock();
begin
  update "weir".leases l set expires = t + renew.ttl, ttl = renew.ttl
    where l.name = a_name and l.key = a_key and l.id = a_id and (a_fence = 0 or l.fence = a_fence) and l.expires > t;
  return found;
end $$;

-- Without notifies, no notice is sent.
create function "weir".release(a_name text, a_key bytea, a_id bytea, a_fence bigint, notifies boolean) returns boolean
language plpgsql volatile as $$
declare t bigint;
begin
  if notifies then perform pg_advisory_xact_lock_shared("weir".waiting_lock(a_name, a_key)); end if;
  t := "weir".clock();
  update "weir".leases l set expires = 0
    where l.name = a_name and l.key = a_key and l.id = a_id and (a_fence = 0 or l.fence = a_fence) and l.expires > t;
  if not found then return false; end if;
  if notifies then
    perform "weir".send_notice('r', a_name, a_key)
      from "weir".semaphores s where s.name = a_name and s.key = a_key and s.notify_until > t;
  end if;
  return true;
end $$;

insert into "weir".migrations (version) values (3);
