-- What came in: the ledger of every mail listed, the bytes received, the tracking row, the audit.
create extension if not exists vector;
create schema atlas;

-- Every (mailbox, uidvalidity, uid) ever listed. It alone gives message keys: day of INTERNALDATE (UTC) and this sequence.
create table atlas.mailbox_ledger (
    mailbox       text        not null,
    uid_validity  bigint      not null,
    uid           text        not null,
    seq           bigint      generated always as identity unique,
    message_key   text        not null unique,
    internal_date timestamptz not null,
    size_bytes    bigint      not null,
    listed_at     timestamptz not null default now(),
    fetched_at    timestamptz,
    flagged_at    timestamptz,
    gone_at       timestamptz,
    refused_code  text,
    duplicate_of  text,
    waits         int         not null default 0,   -- transient failures so far; the next try waits longer each time
    not_before    timestamptz not null default now(),
    wait_code     text,
    primary key (mailbox, uid_validity, uid),
    check (message_key ~ '^\d{8}-\d{6,}$')
);
-- The sensor asks each minute for what was listed and neither fetched nor lost: nearly always a handful of rows.
create index mailbox_ledger_open on atlas.mailbox_ledger (seq) where fetched_at is null and gone_at is null and refused_code is null;
create index mailbox_ledger_unflagged on atlas.mailbox_ledger (seq) where fetched_at is not null and flagged_at is null and gone_at is null;
create index mailbox_ledger_mark on atlas.mailbox_ledger (mailbox, uid_validity, seq);

-- One row a look at a mailbox: where the high-water mark of a first sight lies, and when it was last read.
create table atlas.mailboxes (
    mailbox       text        primary key,
    uid_validity  bigint      not null,
    first_mark    bigint,
    last_read_at  timestamptz not null default now()
);

-- The bytes as received, then what could be understood of them. understood_at null: kept, not yet parsed.
create table atlas.messages (
    message_key     text        primary key references atlas.mailbox_ledger (message_key),
    raw             bytea       not null,
    raw_sha256      text        not null,
    stored_at       timestamptz not null default now(),
    understood_at   timestamptz,
    message_id      text,
    fingerprint     text        not null,
    from_name       text,
    from_address    text,
    recipients      jsonb       not null default '[]',
    subject         text,
    sent_at         timestamptz,
    body_text       text,
    body_html       text,
    headers         jsonb       not null default '{}',
    forward         jsonb       not null default '{"found": false}',
    automatic       text,
    trust_level     text        not null default 'other',
    trust_reason    text,
    requester_name    text,
    requester_address text,
    requester_claimed boolean   not null default false,
    remarks         text[]      not null default '{}',
    constraint messages_once unique nulls not distinct (message_id, fingerprint)
);

create table atlas.attachments (
    message_key   text   not null references atlas.messages (message_key) on delete cascade,
    part_index    int    not null,
    name          text,
    declared_type text   not null,
    sniffed_type  text   not null,
    size_bytes    bigint not null,
    sha256        text   not null,
    inline        boolean not null,
    verdict       text   check (verdict in ('clean', 'infected', 'unscannable', 'error')),
    signature     text,
    primary key (message_key, part_index)
);

-- The tracking row: where a message stands. Only store/tracking.py writes a status.
create table atlas.inbox (
    message_key        text        primary key references atlas.messages (message_key) on delete cascade,
    status             text        not null default 'received' check (status in
        ('received', 'classified', 'spawning', 'actioned', 'qa_failed', 'escalated', 'closed', 'blocked', 'failed')),
    reason_code        text,
    intent             text        check (intent in ('run', 'chantier', 'question', 'noise', 'negociation', 'conseil')),
    classifier_intent  text,
    final_intent       text,
    confidence         double precision check (confidence between 0 and 1),
    model              text,
    reasoning          text,
    tenant             text,
    tenant_method      text,       -- how it was found: domain, contact, mentioned, none
    work_kind          text,
    work_id            bigint,
    round              int         not null default 1,
    attempt            int         not null default 0,
    scan_override      boolean     not null default false,
    spawn_requested_at timestamptz,
    received_at        timestamptz not null default now(),
    classified_at      timestamptz,
    status_at          timestamptz not null default now(),
    constraint inbox_kind unique (message_key, work_kind)
);
create index inbox_status on atlas.inbox (status, message_key);

create table atlas.inbox_claims (
    message_key text        primary key,
    run_id      text        not null,
    stage       text        not null,
    tries       int         not null default 0,     -- times this message itself was started and not finished
    until       timestamptz not null
);

create table atlas.audit_log (
    id          bigint      generated always as identity primary key,
    at          timestamptz not null default clock_timestamp(),
    message_key text,
    action      text        not null,
    actor       text        not null,
    detail      jsonb       not null default '{}'
);
create index audit_log_message on atlas.audit_log (message_key, at desc);
create index audit_log_action on atlas.audit_log (action, at desc);

create function atlas.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
create trigger audit_log_append_only before update or delete or truncate on atlas.audit_log
    for each statement execute function atlas.refuse_change();
