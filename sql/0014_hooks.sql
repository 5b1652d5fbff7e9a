-- What an agent's hooks may write: their own events, by one function, as a role that can do nothing else.
alter table atlas.spawns add column hook_token_sha256 bytea;
create unique index spawns_hook_token on atlas.spawns (hook_token_sha256) where hook_token_sha256 is not null;

create table atlas.hook_events (
    id         bigint      generated always as identity primary key,
    spawn_id   bigint      not null references atlas.spawns (id),
    at         timestamptz not null default clock_timestamp(),
    event_type text        not null check (length(event_type) between 1 and 80),
    payload    jsonb       not null
);
create index hook_events_spawn on atlas.hook_events (spawn_id, id);

-- The token is the caller's proof of which start it belongs to; it is worth nothing once that start has ended.
create function atlas.note_hook(token text, event_type text, payload jsonb default '{}') returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    start bigint;
    noted bigint;
begin
    select s.id into start from atlas.spawns s
    where s.hook_token_sha256 = sha256(convert_to(token, 'UTF8')) and s.status in ('claimed', 'running');
    if start is null then
        raise exception 'hook_token_unknown' using errcode = 'insufficient_privilege';
    end if;
    if octet_length(payload::text) > 65536 then
        raise exception 'hook_payload_too_large' using errcode = 'program_limit_exceeded';
    end if;
    if (select count(*) from atlas.hook_events h where h.spawn_id = start) >= 10000 then
        raise exception 'hook_events_too_many' using errcode = 'program_limit_exceeded';
    end if;
    insert into atlas.hook_events (spawn_id, event_type, payload) values (start, note_hook.event_type, note_hook.payload)
    returning id into noted;
    return noted;
end $$;
revoke all on function atlas.note_hook(text, text, jsonb) from public;

-- A role is the server's, not the database's: another house may have made it, or may be making it now. Who may not make roles is told
-- by `atlas doctor`, and hooks then have no database.
do $$
begin
    if not exists (select from pg_roles where rolname = 'atlas_agent') then
        create role atlas_agent login connection limit 20;
    end if;
exception
    when duplicate_object or unique_violation then null;
    when insufficient_privilege then raise warning 'the role atlas_agent could not be made';
end $$;
do $$
begin
    if exists (select from pg_roles where rolname = 'atlas_agent') then
        grant usage on schema atlas to atlas_agent;
        grant execute on function atlas.note_hook(text, text, jsonb) to atlas_agent;
    end if;
end $$;
