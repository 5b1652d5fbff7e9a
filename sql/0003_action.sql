-- What was done: agents started, events, deployments, checks, and the outbox.
create table atlas.spawns (
    id              bigint      generated always as identity primary key,
    message_key     text        not null references atlas.messages (message_key),
    round           int         not null,
    attempt         int         not null,
    try             int         not null,
    status          text        not null default 'claimed' check (status in ('claimed', 'running', 'ok', 'failed', 'cancelled', 'lost')),
    code            text,
    profile         text        not null,
    tenant          text,
    agent           text        not null,
    model           text        not null,
    run_id          text,
    pid             int,
    pid_started     double precision,
    branch          text,
    base_commit     text,
    commits         text[]      not null default '{}',
    contract        jsonb,
    claimed_at      timestamptz not null default now(),
    started_at      timestamptz,
    heartbeat_at    timestamptz not null default now(),
    ended_at        timestamptz,
    exit_status     int,
    signal          int,
    seconds         double precision,
    events          int,
    cost_usd        numeric(12, 6),
    tokens_in       bigint,
    tokens_out      bigint,
    tokens_cache_read bigint,
    turns           int,
    denials         int,
    unique (message_key, round, attempt, try)
);
create index spawns_live on atlas.spawns (tenant) where status in ('claimed', 'running');

create table atlas.spawn_event_log (
    spawn_id   bigint      not null references atlas.spawns (id),
    seq        int         not null,
    at         timestamptz not null default clock_timestamp(),
    event_type text        not null,
    tool_name  text,
    payload    jsonb       not null,
    primary key (spawn_id, seq)
);
create view atlas.spawn_events as select spawn_id, seq, at, event_type, tool_name, payload from atlas.spawn_event_log;

create table atlas.deployments (
    id          bigint      generated always as identity primary key,
    message_key text        not null references atlas.messages (message_key),
    round       int         not null,
    attempt     int         not null,
    tenant      text        not null,
    commit      text        not null,
    status      text        not null default 'started' check (status in ('started', 'ok', 'failed')),
    code        text,
    exit_status int,
    seconds     double precision,
    output_tail text,
    pid         int,
    started_at  timestamptz not null default now(),
    ended_at    timestamptz,
    unique (message_key, round, attempt)
);

create table atlas.qa_reports (
    id          bigint      generated always as identity primary key,
    message_key text        not null references atlas.messages (message_key),
    round       int         not null,
    attempt     int         not null,
    status      text        not null default 'started' check (status in ('started', 'passed', 'failed')),
    started_at  timestamptz not null default now(),
    ended_at    timestamptz,
    unique (message_key, round, attempt)
);
create table atlas.qa_checks (
    report_id    bigint  not null references atlas.qa_reports (id) on delete cascade,
    position     int     not null,
    route        text    not null,
    level        text    not null,
    ok           boolean not null,
    http_status  int,
    milliseconds int     not null,
    errors       text[]  not null default '{}',
    screenshot   text,
    primary key (report_id, position)
);

-- The outbox. The Message-ID is fixed when the row is written, so that a resend is recognised as the same mail.
create table atlas.notifications (
    id          bigint      generated always as identity primary key,
    message_key text        not null references atlas.messages (message_key),
    round       int         not null,
    attempt     int         not null,
    kind        text        not null,
    message_id  text        not null unique,
    facts       jsonb       not null,
    state       text        not null default 'pending' check (state in ('pending', 'sending', 'sent', 'uncertain', 'refused')),
    code        text,
    tries       int         not null default 0,
    next_try_at timestamptz not null default now(),
    created_at  timestamptz not null default now(),
    claimed_at  timestamptz,
    sent_at     timestamptz,
    recipients  text[]      not null default '{}',
    unique (message_key, round, attempt, kind)
);
create index notifications_open on atlas.notifications (next_try_at) where state in ('pending', 'sending');
