-- The pulse of each mailbox: when it was read, since when it can't be, when it may be tried again, and whether the team
-- has been told of its silence. Kept apart from the numbering, which exists only once a mailbox could be listed.
create table atlas.mailbox_pulse (
    mailbox       text        primary key,
    watched_since timestamptz not null default now(), -- the silence before it is the house's own
    watched_at    timestamptz not null default now(),
    last_read_at  timestamptz,
    failures      int         not null default 0,
    code          text,                               -- of the last failure; null while all is well
    retry_at      timestamptz not null default now(),
    silent_at     timestamptz                         -- an alert of its silence is out and no all-clear yet
);
insert into atlas.mailbox_pulse (mailbox, last_read_at) select mailbox, last_read_at from atlas.mailboxes;
alter table atlas.mailboxes drop column last_read_at;

-- An alert and its all-clear leave by the recap's own way out: same claims, same guard. They concern no message.
alter table atlas.notifications alter column message_key drop not null;
alter table atlas.notifications add constraint notifications_of_a_message
    check ((kind in ('alert', 'all_clear')) or message_key is not null);

-- A bounce is told to the recap that it is about.
alter table atlas.notifications add column bounced_at timestamptz;

-- Whether a mail is known already is asked for every mail; the uniqueness rule's own index can't answer "no Message-ID either".
create index messages_fingerprint on atlas.messages (fingerprint);

-- Mails are mostly base64: compressing them costs the server more time than it saves space.
alter table atlas.messages alter column raw set storage external;
