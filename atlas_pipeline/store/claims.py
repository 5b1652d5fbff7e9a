"""Leases of messages being worked on, so that two runs never work on one message and a killer mail is seen."""

from __future__ import annotations

from collections.abc import Sequence

from atlas_pipeline.store.database import Connection


def lease(conn: Connection, keys: Sequence[str], *, run_id: str, seconds: int) -> list[str]:
    """Lease what is free to this run; return the keys leased. A lease that ran out is taken over with its count of tries."""
    rows = conn.execute(
        "insert into atlas.inbox_claims as c (message_key, run_id, stage, until) "
        "select key, %(run)s, 'leased', now() + %(seconds)s * interval '1 second' from unnest(%(keys)s::text[]) as key order by key "
        "on conflict (message_key) do update set run_id = excluded.run_id, until = excluded.until "
        "where c.until < now() or c.run_id = excluded.run_id returning message_key",
        {"keys": list(keys), "run": run_id, "seconds": seconds},
    ).fetchall()
    return sorted(row["message_key"] for row in rows)


def begin(conn: Connection, key: str, *, run_id: str, stage: str, seconds: int) -> int:
    """Start the message itself: count the try and prolong the lease; return how many tries that makes. 0: no longer ours."""
    row = conn.execute(
        "update atlas.inbox_claims set tries = tries + 1, stage = %s, until = now() + %s * interval '1 second' "
        "where message_key = %s and run_id = %s returning tries",
        (stage, seconds, key, run_id),
    ).fetchone()
    return row["tries"] if row else 0


def begin_together(conn: Connection, keys: Sequence[str], *, run_id: str, stage: str) -> None:
    """Start several messages at once: each counts a try until ``end_together``, for whichever of them kills the worker."""
    conn.execute(
        "update atlas.inbox_claims set tries = tries + 1, stage = %s where message_key = any(%s) and run_id = %s",
        (stage, list(keys), run_id),
    )


def end_together(conn: Connection, keys: Sequence[str], *, run_id: str) -> None:
    """They have come through: the try was none."""
    conn.execute(
        "update atlas.inbox_claims set tries = tries - 1 where message_key = any(%s) and run_id = %s and tries > 0",
        (list(keys), run_id),
    )


def release(conn: Connection, keys: Sequence[str], *, run_id: str) -> None:
    """Give back; a message that ended in an orderly way starts again from no tries."""
    conn.execute("delete from atlas.inbox_claims where message_key = any(%s) and run_id = %s", (list(keys), run_id))


def expire(conn: Connection, key: str, *, run_id: str) -> None:
    """End this run's lease and keep the count of tries."""
    conn.execute(
        "update atlas.inbox_claims set until = now() - interval '1 second' where message_key = %s and run_id = %s",
        (key, run_id),
    )


def forget(conn: Connection, key: str) -> None:
    """An operator starts the message over: its lease and its count of tries are gone."""
    conn.execute("delete from atlas.inbox_claims where message_key = %s", (key,))


def expire_dead(conn: Connection, live_run_ids: Sequence[str]) -> list[str]:
    """End the leases of runs that no longer live, so that their messages need not wait out the lease; return the keys."""
    rows = conn.execute(
        "update atlas.inbox_claims set until = now() - interval '1 second' where until > now() and run_id <> all(%s) returning message_key",
        (list(live_run_ids),),
    ).fetchall()
    return sorted(row["message_key"] for row in rows)
