-- What it means: lessons are found by words where vectors can't be had, and a start keeps what its agent was told.

-- Both languages in one document: a lesson is written in one of them, a mission in either.
alter table atlas.scars add column words tsvector
    generated always as (to_tsvector('french', lesson) || to_tsvector('english', lesson)) stored;
create index scars_words on atlas.scars using gin (words);
create index scars_codename on atlas.scars (codename);
-- A lesson is a person's: nothing that a mail says becomes one by itself.
alter table atlas.scars add constraint scars_author check (author ~ '^operator:.');

create table atlas.briefings (
    sha256 text        primary key check (sha256 ~ '^[0-9a-f]{64}$'),
    at     timestamptz not null default now(),
    body   text        not null
);
alter table atlas.spawns add column briefing_sha256 text references atlas.briefings (sha256);
