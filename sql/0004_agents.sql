-- Who acts: the registry, its satellites, and what they learn.
create table atlas.agents (
    id                 bigint       generated always as identity primary key,
    codename           varchar(64)  not null unique check (codename ~ '^[a-z0-9]+(-[a-z0-9]+)*$'),
    nickname           varchar(64)  not null,
    role               varchar(255) not null,
    role_en            varchar(255),
    group_name         varchar(64)  not null check (group_name in ('direction', 'cadrage', 'execution', 'validation')),
    orbite             integer      not null check (orbite between 1 and 3),
    heritage           varchar(255),
    heritage_en        varchar(255),
    cognitive_frame    text         not null,
    cognitive_frame_en text,
    personality        text,
    personality_en     text,
    quote              text,
    quote_en           text,
    inspiration        text,
    inspiration_en     text,
    proof              text,
    proof_en           text,
    job_mission        text,
    job_mission_en     text,
    job_perimeter      text,
    job_perimeter_en   text,
    job_key_checks     text,
    job_key_checks_en  text,
    content_md         text,
    active             integer      not null default 1 check (active in (0, 1)),
    prompt_domains     varchar(255),
    auto_spawn         integer      not null default 0,
    spawn_count        integer      not null default 0,
    error_count        integer      not null default 0
);
create view atlas.personas as select * from atlas.agents;

create table atlas.agent_activity (
    id bigint generated always as identity primary key, at timestamptz not null default now(),
    codename varchar(64) not null references atlas.agents (codename), activity text not null, message_key text);
create view atlas.persona_activity as select * from atlas.agent_activity;

create table atlas.agent_heartbeats (
    codename varchar(64) primary key references atlas.agents (codename), at timestamptz not null, state text not null);
create view atlas.persona_heartbeats as select * from atlas.agent_heartbeats;

create table atlas.agent_relations (
    codename varchar(64) not null references atlas.agents (codename), other varchar(64) not null references atlas.agents (codename),
    relation text not null, primary key (codename, other, relation));
create view atlas.persona_relations as select * from atlas.agent_relations;

create table atlas.agent_experience (
    codename varchar(64) primary key references atlas.agents (codename), points integer not null default 0, level integer not null default 1);
create view atlas.persona_experience as select * from atlas.agent_experience;

create table atlas.agent_experience_history (
    id bigint generated always as identity primary key, at timestamptz not null default now(),
    codename varchar(64) not null references atlas.agents (codename), points integer not null, reason text not null, message_key text);
create view atlas.persona_experience_history as select * from atlas.agent_experience_history;

create table atlas.agent_events (
    id bigint generated always as identity primary key, at timestamptz not null default now(),
    codename varchar(64) not null references atlas.agents (codename), event text not null, detail jsonb not null default '{}');
create table atlas.agent_skills (
    codename varchar(64) not null references atlas.agents (codename), skill text not null, primary key (codename, skill));
create table atlas.agent_tools (
    codename varchar(64) not null references atlas.agents (codename), tool text not null, primary key (codename, tool));

create table atlas.scars (
    id bigint generated always as identity primary key, at timestamptz not null default now(),
    codename varchar(64) references atlas.agents (codename),   -- null: a global scar
    tenant text references atlas.tenants (slug), lesson text not null, provenance text not null, author text not null,
    expires_at timestamptz);
create table atlas.doctrines (
    code text primary key, body text not null, body_en text, active boolean not null default true);
create table atlas.operator_preferences (
    slice text primary key, body text not null);

-- Vectors of several models share the table; a search stays within one model. The planner's exact path is right below ~10k
-- rows an agent, so there is no vector index.
create table atlas.embeddings (
    owner_kind text not null, owner_id bigint not null, model text not null, codename varchar(64),
    vector vector not null, text_sha256 text not null, at timestamptz not null default now(),
    primary key (owner_kind, owner_id, model));
create index embeddings_search on atlas.embeddings (model, codename);
