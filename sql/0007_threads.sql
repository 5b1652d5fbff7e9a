-- What conversation a mail belongs to, so that one in which machines answer each other can be stopped by its pace.
alter table atlas.messages add column thread_key text;
create index messages_thread on atlas.messages (thread_key, stored_at);
