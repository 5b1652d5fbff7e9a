-- How well it went, month by month.
create table atlas.calibration_reports (
    month       text        primary key check (month ~ '^\d{4}-\d{2}$'),
    computed_at timestamptz not null default now(),
    metrics     jsonb       not null,
    rendered    text        not null
);
-- The metrics count audit actions of a month.
create index audit_log_at on atlas.audit_log (at, action);
