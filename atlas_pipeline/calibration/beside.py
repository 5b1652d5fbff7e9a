"""A replay as tables: the metrics of both sides, and what changed into what. No number is computed here but sums of counts."""

from __future__ import annotations

from collections import Counter

from atlas_pipeline.calibration.comparing import VERDICTS, Comparison
from atlas_pipeline.calibration.tables import Table, Words, places

# Single messages that are shown: what is beyond them is in the counts, and in `atlas replay --json`.
MOST_SHOWN = 50


def metrics_beside(comparison: Comparison, words: Words) -> Table:
    """The metrics over the same mails, as they are and as they would have been."""
    truth, other = comparison.truth, comparison.replay
    rows: list[tuple[str, str, str]] = []
    for name in sorted({one.name for side in (truth, other) for one in side.intents}):
        was, now = (sum(one.volume for one in side.intents if one.name == name) for side in (truth, other))
        rows.append((name, str(was), str(now)))
    for label, before, after in (
        ("uncertain", truth.uncertain.value, other.uncertain.value),
        ("right_where_judged", truth.reliability.right.value, other.reliability.right.value),
        ("calibration_error", truth.reliability.error, other.reliability.error),
        ("brier", truth.reliability.brier, other.reliability.brier),
        ("internal_kept", truth.internal.value, other.internal.value),
    ):
        rows.append((words[label], places(before), places(after)))
    rows += [
        (words["internal"], str(truth.internal.whole), str(other.internal.whole)),
        (words["new_jobs"], "", str(comparison.new_jobs)),
    ]
    return Table(words["replay_metrics"], (words["measure"], words["truth"], words["other"]), tuple(rows))


def changes(comparison: Comparison, words: Words) -> Table:
    """How many decisions went from one intent to another, and what is known of them; the most frequent first."""
    counted = Counter((one.was, one.now, one.verdict) for one in comparison.changed)
    pairs = Counter((one.was, one.now) for one in comparison.changed)
    return Table(
        words["replay_changes"],
        (words["truth"], words["other"], words["count"], *(words[verdict] for verdict in VERDICTS)),
        tuple(
            (was, now, str(count), *(str(counted[was, now, verdict]) for verdict in VERDICTS))
            for (was, now), count in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
        ),
    )


def changed_messages(comparison: Comparison, words: Words) -> Table:
    """Single messages whose decision came out otherwise, ``MOST_SHOWN`` at most: the worse ones first."""
    order = {verdict: place for place, verdict in enumerate(("worse", "better", "unknown"))}
    shown = sorted(comparison.changed, key=lambda one: (order[one.verdict], one.message_key))[:MOST_SHOWN]
    beyond = len(comparison.changed) - len(shown)
    return Table(
        words["replay_messages"],
        (words["message"], words["truth"], words["other"], words["level"]),
        tuple(
            (
                one.message_key,
                f"{one.was} {one.was_confidence:.2f}",
                f"{one.now} {one.confidence:.2f}",
                words[one.verdict],
            )
            for one in shown
        ),
        f"{words['beyond']}: {beyond}" if beyond else "",
    )
