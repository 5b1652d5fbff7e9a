-- What was done: the site as it was before a message changed it, both widths of a picture, and recaps that people settle.

-- Hosts that the pages of a client's site may ask besides itself; and where its commits can be read, the commit's name appended.
alter table atlas.tenants add column allowed_hosts text[] not null default '{}';
alter table atlas.tenants add column commit_url text check (commit_url ~ '^https?://');

alter table atlas.qa_checks add column phone_screenshot text;

-- Measured once, before the first deployment of the message; later rounds are still compared with it.
create table atlas.sites_before (
    message_key text        primary key references atlas.messages (message_key) on delete cascade,
    tenant      text        not null,
    measured_at timestamptz not null default now(),
    checks      jsonb       not null
);
-- Whose deployment stands on a client's pre-production now is asked before each report.
create index deployments_tenant on atlas.deployments (tenant, started_at desc);

-- Recipients that the server did not take while it took others, each with its code; and when a person asked for another try.
alter table atlas.notifications add column refused_recipients text[] not null default '{}';
alter table atlas.notifications add column asked_again_at timestamptz;
