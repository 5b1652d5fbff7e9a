-- What agents cost since midnight, and how the last one ended, are asked for at every cycle.
create index spawns_ended on atlas.spawns (ended_at desc nulls first);
