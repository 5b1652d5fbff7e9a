-- Calibration: what a month's report reads is found by its moment, however many other months there are.
do $$
declare kind text;
begin
    foreach kind in array array['runs', 'chantiers', 'questions', 'negociations', 'conseils'] loop
        execute format('create index %I on atlas.%I (created_at) include (tenant, status, message_key, decided_at)
                        where superseded_at is null', kind || '_drafted', kind);
    end loop;
end $$;
-- The gate counts every job of an internal client up to the month's end.
create index chantiers_tenant on atlas.chantiers (tenant, created_at) include (status) where superseded_at is null;
create index inbox_corrected_by_agent on atlas.inbox (message_key) include (final_intent) where final_intent <> intent;
create index spawns_claimed on atlas.spawns (claimed_at);
create index notifications_sent on atlas.notifications (sent_at) where kind = 'recap' and state = 'sent';

-- Which phase the house is in. A phase is entered by an operator's order alone and left when the gate is lost.
create table atlas.phases (
    id          bigint      generated always as identity primary key,
    at          timestamptz not null default now(),
    phase       int         not null check (phase in (2, 3)),
    decision_id bigint      not null references atlas.phase_decisions (id),
    actor       text        not null,
    -- Nobody but a person lets a house into phase 3.
    constraint phases_confirmed check (phase = 2 or actor ~ '^operator:.')
);
create index phase_decisions_month on atlas.phase_decisions (month, id);

-- Stored mails judged again by another model, prompt or threshold, beside the truth: nothing else reads these.
create table atlas.replays (
    id             bigint      generated always as identity primary key,
    at             timestamptz not null default now(),
    month          text        not null check (month ~ '^\d{4}-\d{2}$'),
    sha256         text        not null check (sha256 ~ '^[0-9a-f]{64}$'), -- of the routing, prompt and thresholds
    prompt_version text        not null,
    floor          double precision not null,
    uncertainty    double precision not null,
    actor          text        not null,
    unique (month, sha256)
);
create table atlas.replay_decisions (
    replay_id         bigint  not null references atlas.replays (id),
    classification_id bigint  not null references atlas.classifications (id), -- the decision it stands beside
    at                timestamptz not null default now(),
    code              text    not null,        -- ok, or why there is no answer
    intent            text,
    classifier_intent text,
    confidence        double precision check (confidence between 0 and 1),
    uncertain         boolean,
    model             text,
    prompt_version    text,
    guards            text[]  not null default '{}',
    tenant            text,
    primary key (replay_id, classification_id),
    check (code <> 'ok' or (intent is not null and classifier_intent is not null and confidence is not null
                            and uncertain is not null and model is not null and prompt_version is not null))
);
create table atlas.replay_calls (
    id           bigint      generated always as identity primary key,
    at           timestamptz not null default now(),
    replay_id    bigint      not null references atlas.replays (id),
    provider     text        not null,
    model        text        not null,
    code         text        not null,
    tokens_in    int,
    tokens_out   int,
    milliseconds int         not null,
    euros        numeric(12, 6)
);
create index replay_calls_at on atlas.replay_calls (at);

do $$
declare name text;
begin
    foreach name in array array['phases', 'replay_decisions', 'replay_calls'] loop
        execute format('create trigger %I before update or delete or truncate on atlas.%I
                        for each statement execute function atlas.refuse_change()', name || '_append_only', name);
    end loop;
end $$;
