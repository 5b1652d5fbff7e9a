-- What it means: tenants, work records, verdicts, decisions, drafts, alarms.
create table atlas.tenants (
    slug           text    primary key check (slug ~ '^[a-z0-9-]+$'),
    name           text    not null,
    active         boolean not null default true,
    internal       boolean not null default false,
    domains        text[]  not null default '{}',
    contacts       text[]  not null default '{}',
    zones          text[]  not null default '{}',
    repository     text,
    branch         text    not null default 'main',
    preprod_url    text,
    deploy_command text[]  not null default '{}',
    default_routes text[]  not null default '{/}',
    version_route  text,
    ai_config      jsonb   not null default '{}',
    created_at     timestamptz not null default now()
);

-- Work records: one live a message, and exclusive across the five tables. live_key is unique within a table; the foreign
-- key to the tracking row's own kind makes a second table's record impossible.
do $$
declare kind text;
begin
    foreach kind in array array['runs', 'chantiers', 'questions', 'negociations', 'conseils'] loop
        execute format($t$
            create table atlas.%1$I (
                id            bigint      generated always as identity primary key,
                message_key   text        not null references atlas.messages (message_key),
                kind          text        not null generated always as (%1$L) stored,
                title         text        not null,
                tenant        text        references atlas.tenants (slug),
                status        text        not null default 'draft' check (status in ('draft', 'accepted', 'cancelled', 'done')),
                created_at    timestamptz not null default now(),
                decided_at    timestamptz,
                decided_by    text,
                superseded_at timestamptz,
                live_key      text        generated always as (case when superseded_at is null then message_key end) stored,
                constraint %2$I unique (live_key),
                constraint %3$I foreign key (live_key, kind) references atlas.inbox (message_key, work_kind)
                    deferrable initially deferred
            )$t$, kind, kind || '_one_live', kind || '_exclusive');
    end loop;
end $$;

create table atlas.scans (
    id           bigint      generated always as identity primary key,
    at           timestamptz not null default now(),
    message_key  text        not null,
    part_index   int,        -- null: the raw mail as a whole
    sha256       text        not null,
    verdict      text        not null,
    signature    text,
    code         text,
    engine       text        not null,
    milliseconds int         not null
);
create index scans_message on atlas.scans (message_key);

create table atlas.classifications (
    id                bigint      generated always as identity primary key,
    at                timestamptz not null default now(),
    message_key       text        not null,
    intent            text        not null,
    classifier_intent text        not null,
    confidence        double precision not null,
    uncertain         boolean     not null,
    model             text        not null,
    prompt_version    text        not null,
    guards            text[]      not null default '{}',
    tenant            text
);
create index classifications_at on atlas.classifications (at);
create index classifications_message on atlas.classifications (message_key);

create table atlas.corrections (
    id          bigint      generated always as identity primary key,
    at          timestamptz not null default now(),
    message_key text        not null,
    intent      text        not null,
    actor       text        not null
);

create table atlas.ai_calls (
    id           bigint      generated always as identity primary key,
    at           timestamptz not null default now(),
    message_key  text,
    task         text        not null,
    provider     text        not null,
    model        text        not null,
    code         text        not null,
    tokens_in    int,
    tokens_out   int,
    milliseconds int         not null
);
create index ai_calls_at on atlas.ai_calls (at);

create table atlas.phase_decisions (
    id        bigint      generated always as identity primary key,
    at        timestamptz not null default now(),
    month     text        not null,
    earned    boolean     not null,
    evidence  jsonb       not null,
    actor     text        not null
);

create table atlas.alerts (
    id          bigint      generated always as identity primary key,
    at          timestamptz not null default now(),
    dedupe_key  text        not null,
    code        text        not null,
    message_key text,
    detail      jsonb       not null default '{}'
);
create index alerts_dedupe on atlas.alerts (dedupe_key, at desc);

create table atlas.reply_drafts (
    id          bigint      generated always as identity primary key,
    at          timestamptz not null default now(),
    message_key text        not null,
    author      text        not null,
    body        text        not null
);
create index reply_drafts_message on atlas.reply_drafts (message_key);

do $$
declare name text;
begin
    foreach name in array array['scans', 'classifications', 'corrections', 'ai_calls', 'phase_decisions', 'alerts'] loop
        execute format('create trigger %I before update or delete or truncate on atlas.%I
                        for each statement execute function atlas.refuse_change()', name || '_append_only', name);
    end loop;
end $$;
