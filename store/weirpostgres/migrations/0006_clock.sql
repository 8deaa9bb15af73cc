-- weir 6: a step back of the clock does not keep the leases of an instance that has died.
--
-- A lease ends at a moment of the clock. If that steps back by an hour, nothing may last for an hour longer: no lease
-- ends later than its TTL from now. The holders renew theirs, which then end by the new clock.

alter table "weir".leases add column ttl bigint not null default 30000000;

-- Whether the clock has stepped back since the lease of a key that ends last was given or renewed.
create function "weir".stepped(a_name text, a_key bytea, t bigint) returns boolean
language plpgsql volatile set enable_seqscan = off as $$
begin
  return coalesce((select l.until > t + l.ttl from "weir".leases l
    where l.name = a_name and l.key = a_key order by l.name desc, l.key desc, l.until desc limit 1), false);
end $$;

-- Acquisitions of one key, in their order.
--
-- n:       version, permits of the limiter, waiting
-- wants:   permits and TTL of each
-- returns: outcome, ok, in use, next end, fence, version of each
create or replace function "weir".hold(a_name text, a_key bytea, n bigint[], ids bytea[], wants bigint[]) returns bigint[]
language plpgsql volatile set enable_seqscan = off as $$
declare
  most constant bigint := n[2];
  bell constant bigint := 10000000; -- for how long releases send notices
  t bigint := "weir".clock();
  v bigint; used bigint; last bigint; waits bigint; dead bigint; same boolean; rings boolean;
  answers bigint[] := '{}'; p bigint; ends bigint; old bigint;
  stepped boolean;
begin
  -- What the snapshot shows: a rejection, or the answer to a question, needs no lock and writes nothing.
  select s.version, s.in_use, s.waiting,
      (select coalesce(sum(l.permits), 0) from "weir".leases l where l.name = a_name and l.key = a_key and l.until <= t),
      exists (select from "weir".leases l where l.name = a_name and l.key = a_key and l.id = any (ids) and l.until > t)
    into v, used, waits, dead, same
    from "weir".semaphores s where s.name = a_name and s.key = a_key;
  stepped := "weir".stepped(a_name, a_key, t);
  used := coalesce(used - dead, 0);
  rings := n[3] = 1 and coalesce(waits, 0) < t + bell / 2;
  for i in 1 .. array_length(ids, 1) loop
    p := wants[2*i-1];
    if v > n[1] then
      answers := answers || array[2, 0, 0, 0, 0, v];
    elsif stepped then
      answers := null;
      exit;
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
  if "weir".stepped(a_name, a_key, t) then
    -- A lease that is being renewed or released just now is left to that.
    update "weir".leases l set until = t + l.ttl from (
        select x.id from "weir".leases x where x.name = a_name and x.key = a_key and x.until > t + x.ttl for update skip locked
      ) late where l.name = a_name and l.key = a_key and l.id = late.id;
    waits := least(waits, t + bell);
  end if;
  used := used - "weir".fold(a_name, a_key, t);
  dead := "weir".dead(a_name, a_key, t);
  same := exists (select from "weir".leases l where l.name = a_name and l.key = a_key and l.id = any (ids) and l.until > t);
  ends := null;

  for i in 1 .. array_length(ids, 1) loop
    p := wants[2*i-1];
    if p > 0 and same then -- sent again, because the answer was lost?
      update "weir".leases l set until = t + wants[2*i], ttl = wants[2*i]
        where l.name = a_name and l.key = a_key and l.id = ids[i] and l.until > t returning l.fence into old;
      if found then
        answers := answers || array[1, 1, used - dead, 0, old, 0];
        continue;
      end if;
    end if;
    if p > 0 and used + p <= most then
      insert into "weir".leases values (a_name, a_key, ids[i], p, greatest(last + 1, t), t + wants[2*i], wants[2*i])
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

create or replace function "weir".renew(a_name text, a_key bytea, a_id bytea, a_fence bigint, ttl bigint) returns boolean
language plpgsql volatile set enable_seqscan = off as $$
declare t bigint := "weir".clock();
begin
  update "weir".leases l set until = t + renew.ttl, ttl = renew.ttl
    where l.name = a_name and l.key = a_key and l.id = a_id and (a_fence = 0 or l.fence = a_fence) and l.until > t;
  return found;
end $$;

insert into "weir".migrations (version) values (6);
