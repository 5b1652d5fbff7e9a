"""Which keys become partitions and which range is run: pure, so every case can be tried."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atlas_pipeline.orchestration.planning import contiguous, intake_run_key, plan_intake

# Keys are drawn in any order: a range is a slice of the insertion order, whatever their names say.
KEYS = st.lists(
    st.sampled_from([f"202612{day:02d}-{number:06d}" for day in (1, 2) for number in range(12)]), unique=True
)


@st.composite
def houses(draw: st.DrawFn) -> tuple[list[str], list[str], int]:
    """Partitions that are there, keys that are due (some have a partition), and a limit."""
    everything = draw(KEYS)
    known = everything[: draw(st.integers(0, len(everything)))]
    due = [key for key in everything if draw(st.booleans())]
    return known, draw(st.permutations(due)), draw(st.integers(1, 6))


@given(houses())
def test_what_is_added_are_the_due_keys_without_a_partition_in_the_order_they_are_due(
    house: tuple[list[str], list[str], int],
) -> None:
    """The ledger's order is the order of arrival; the partitions follow it."""
    partitions, due, limit = house
    assert plan_intake(partitions, due, busy=False, limit=limit).add == tuple(k for k in due if k not in partitions)


@given(houses())
def test_a_span_is_a_slice_of_the_insertion_order_and_holds_due_keys_alone(
    house: tuple[list[str], list[str], int],
) -> None:
    """Dagster runs everything between the two ends, in insertion order: a key more there is a mail worked on unasked."""
    partitions, due, limit = house
    plan = plan_intake(partitions, due, busy=False, limit=limit)
    order = [*partitions, *plan.add]
    assert len(plan.span) <= limit
    assert set(plan.span) <= set(due)
    if plan.span:
        start = order.index(plan.span[0])
        assert tuple(order[start : start + len(plan.span)]) == plan.span


@given(houses())
def test_a_span_begins_with_the_first_due_key_and_is_as_long_as_it_may_be(
    house: tuple[list[str], list[str], int],
) -> None:
    """Nothing that is due is passed over for ever."""
    partitions, due, limit = house
    plan = plan_intake(partitions, due, busy=False, limit=limit)
    order = [*partitions, *plan.add]
    assert bool(plan.span) == bool(due)
    if due:
        assert plan.span[0] == next(key for key in order if key in due)
        after = order.index(plan.span[-1]) + 1
        assert len(plan.span) == limit or after == len(order) or order[after] not in due


@given(houses())
def test_while_an_intake_run_is_live_keys_are_only_added(house: tuple[list[str], list[str], int]) -> None:
    """One live intake run a mailbox."""
    partitions, due, limit = house
    assert plan_intake(partitions, due, busy=True, limit=limit).span == ()


@given(houses())
def test_looking_again_after_the_keys_were_added_gives_the_same_span(house: tuple[list[str], list[str], int]) -> None:
    """A tick that died between its partitions and its run is completed by the next."""
    partitions, due, limit = house
    plan = plan_intake(partitions, due, busy=False, limit=limit)
    again = plan_intake([*partitions, *plan.add], due, busy=False, limit=limit)
    assert again.add == ()
    assert again.span == plan.span


def test_keys_are_never_sorted() -> None:
    """A mail with an older day may come in later: its key then stands behind younger ones."""
    plan = plan_intake(["20261202-000001"], ["20261202-000001", "20261201-000002"], busy=False, limit=200)
    assert plan.add == ("20261201-000002",)
    assert plan.span == ("20261202-000001", "20261201-000002")


def test_scattered_keys_become_their_contiguous_ranges_one_after_the_other() -> None:
    """A range must not take in what lies between."""
    order, wanted = ["a", "b", "c", "d", "e"], {"a", "b", "d"}
    first = contiguous(order, wanted, 200)
    assert first == ("a", "b")
    assert contiguous(order, wanted - set(first), 200) == ("d",)


@given(KEYS.filter(bool), st.integers(0, 3), st.integers(0, 3))
def test_a_run_key_names_the_range_and_how_often_it_was_run(span: list[str], earlier: int, later: int) -> None:
    """Dagster uses a run key once for ever."""
    assert (intake_run_key(span, earlier) == intake_run_key(span, later)) == (earlier == later)
    assert intake_run_key(span, earlier) != intake_run_key([*span, "20261203-000099"], earlier)
    assert span[0] in intake_run_key(span, earlier)
