"""Each mailbox's pulse: read, failing, silent. One row a mailbox ever tried, by its identity without credentials."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from atlas_pipeline.store.database import Connection


@dataclass(frozen=True)
class Pulse:
    """``silent_seconds`` since the last successful look, or since somebody began to watch where that was later."""

    mailbox: str
    silent_seconds: float
    failures: int
    code: str | None
    resting_seconds: float
    reported: bool


def pulse(conn: Connection, mailbox: str) -> Pulse | None:
    """How a mailbox is; None where it was never tried."""
    row = conn.execute(
        "select mailbox, extract(epoch from now() - greatest(last_read_at, watched_since))::float as silent_seconds, failures, code, "
        "greatest(extract(epoch from retry_at - now()), 0)::float as resting_seconds, silent_at is not null as reported "
        "from atlas.mailbox_pulse where mailbox = %s",
        (mailbox,),
    ).fetchone()
    return Pulse(**row) if row else None


def last_read_at(conn: Connection, mailbox: str) -> datetime | None:
    """When the mailbox was last listed."""
    row = conn.execute("select last_read_at from atlas.mailbox_pulse where mailbox = %s", (mailbox,)).fetchone()
    return row["last_read_at"] if row else None


def read(conn: Connection, mailbox: str) -> None:
    """The mailbox was listed just now: its failures are over."""
    conn.execute(
        "insert into atlas.mailbox_pulse (mailbox, last_read_at) values (%s, now()) on conflict (mailbox) do update "
        "set last_read_at = now(), failures = 0, code = null, retry_at = now()",
        (mailbox,),
    )


def failed(
    conn: Connection, mailbox: str, code: str, *, first_seconds: float, longest_seconds: float, free: int
) -> None:
    """A look or a fetch failed. After ``free`` failures in a row the server is left alone, each time twice as long."""
    conn.execute(
        "insert into atlas.mailbox_pulse as p (mailbox, failures, code, retry_at) "
        "values (%(mailbox)s, 1, %(code)s, now() + %(first)s * (1 > %(free)s)::int * interval '1 second') "
        "on conflict (mailbox) do update set failures = p.failures + 1, code = excluded.code, retry_at = now() + case "
        "when p.failures + 1 > %(free)s then least(%(first)s * power(2, least(p.failures - %(free)s, 16)), %(longest)s) else 0 end "
        "* interval '1 second'",
        {"mailbox": mailbox, "code": code, "first": first_seconds, "longest": longest_seconds, "free": free},
    )


def rest_no_longer(conn: Connection, mailbox: str) -> None:
    """Somebody saw the mailbox answer: the next look may come at once."""
    conn.execute("update atlas.mailbox_pulse set retry_at = now() where mailbox = %s", (mailbox,))


def watch(conn: Connection, mailbox: str, *, gap_seconds: float) -> None:
    """Somebody looks at the pulse. After a longer gap the house itself was away, and its silence is not the mailbox's."""
    conn.execute(
        "insert into atlas.mailbox_pulse (mailbox) values (%s) on conflict (mailbox) do update set watched_at = now(), watched_since = "
        "case when atlas.mailbox_pulse.watched_at < now() - %s * interval '1 second' then now() "
        "else atlas.mailbox_pulse.watched_since end",
        (mailbox, gap_seconds),
    )


def silence_begins(conn: Connection, mailbox: str, after_seconds: float) -> bool:
    """Note that the team is told of the silence; True for the one caller who noted it."""
    row = conn.execute(
        "update atlas.mailbox_pulse set silent_at = now() where mailbox = %s and silent_at is null "
        "and greatest(last_read_at, watched_since) < now() - %s * interval '1 second' returning 1 as noted",
        (mailbox, after_seconds),
    ).fetchone()
    return row is not None


def silence_ends(conn: Connection, mailbox: str, after_seconds: float) -> float | None:
    """Note that the mailbox is read again; the seconds since the alert for the one caller who noted it, else None."""
    row = conn.execute(
        "with old as (select mailbox, silent_at from atlas.mailbox_pulse where mailbox = %s and silent_at is not null "
        "and last_read_at >= now() - %s * interval '1 second' for update) "
        "update atlas.mailbox_pulse p set silent_at = null from old where p.mailbox = old.mailbox "
        "returning extract(epoch from now() - old.silent_at)::float as seconds",
        (mailbox, after_seconds),
    ).fetchone()
    return float(row["seconds"]) if row else None
