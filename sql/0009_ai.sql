-- What it means: what models cost, drafts on questions, and what an operator corrected.
alter table atlas.ai_calls add column euros numeric(12, 6);
create index ai_calls_message on atlas.ai_calls (message_key) where message_key is not null;

-- A reply that was prepared for the message before its question was recorded.
alter table atlas.questions add column draft_id bigint references atlas.reply_drafts (id);

alter table atlas.corrections add constraint corrections_intent
    check (intent in ('run', 'chantier', 'question', 'noise', 'negociation', 'conseil'));
create index corrections_message on atlas.corrections (message_key, id desc);

-- Vectors of mails are kept as those of lessons are, so that a correction is embedded once.
create table atlas.correction_vectors (
    correction_id bigint not null references atlas.corrections (id),
    model         text   not null,
    vector        real[] not null,
    primary key (correction_id, model)
);
