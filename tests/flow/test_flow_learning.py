"""What an operator corrects is learned: by the local model at its next training, by the language model as examples."""

from __future__ import annotations

import pytest

from atlas_pipeline.errors import Refused
from atlas_pipeline.flow import learning, operator
from atlas_pipeline.model import Intent
from tests.fixtures_flow import Bench, failures, judged, letter

ODD = "Le zorglub de la vitrine bulgroz encore, merci d'y penser quand vous passerez.\n"


def local(bench: Bench) -> Bench:
    """A house without a key, as a new process sees it."""
    return bench.again(MISTRAL_API_KEY=None)


def test_a_correction_is_stored_and_changes_nothing_else(bench: Bench) -> None:
    key = bench.take_in(letter("Vitrine", ODD), Intent.NOISE)
    assert operator.correct(bench.parts.db, key, Intent.RUN, actor="operator:lea") is Intent.NOISE
    assert bench.rows("select message_key, intent, actor from atlas.corrections") == [
        {"message_key": key, "intent": "run", "actor": "operator:lea"}
    ]
    assert bench.actions(key)[-1] == "corrected"
    assert bench.state(key).intent is Intent.NOISE
    with pytest.raises(Refused):
        operator.correct(bench.parts.db, "20261201-999999", Intent.RUN, actor="operator:lea")


def test_the_next_training_knows_it_and_the_row_says_so(bench: Bench) -> None:
    key = bench.take_in(letter("Vitrine", ODD), Intent.NOISE)
    for number in range(3):
        operator.correct(
            bench.parts.db, key, Intent.NEGOCIATION if number < 2 else Intent.CHANTIER, actor="operator:lea"
        )
    house = local(bench)
    house.put(letter("Re: Vitrine", ODD + "Toujours le zorglub.\n"))
    (again,) = house.discover()
    assert failures(house.intake([again])) == []
    state = house.state(again)
    assert (state.intent, state.model) == (Intent.CHANTIER, "local/e5-lr-2+1")  # the newest word on a mail counts
    assert f"correction of {key}" in str(state.reasoning)
    assert "zorglub" not in str(state.reasoning)  # a word of the mail alone: it might be a name
    assert house.one("select count(*) from atlas.correction_vectors") == 1
    assert learning.corrections(house.parts.db.transaction, house.parts.local)[0].document.startswith("Vitrine")


def test_the_language_model_is_shown_corrections_only_where_that_is_wanted(bench: Bench) -> None:
    key = bench.take_in(letter("Vitrine", ODD), Intent.NOISE)
    operator.correct(bench.parts.db, key, Intent.RUN, actor="operator:lea")
    for learn, shown in ((False, False), (True, True)):
        house = bench.again(learn=learn)
        house.put(letter(f"Autre {learn}", f"Une autre demande, {learn}.\n"))
        (other,) = house.discover()
        house.model.script = [judged(Intent.QUESTION)]
        assert failures(house.intake([other])) == []
        asked = house.model.asked[-1]["messages"][1]["content"]
        assert ("zorglub" in asked) is shown
        assert ("A colleague judged this earlier e-mail: run" in asked) is shown


def test_a_corrected_mail_that_can_not_be_parsed_any_more_is_left_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = bench.take_in(letter("Vitrine", ODD), Intent.NOISE)
    operator.correct(bench.parts.db, key, Intent.RUN, actor="operator:lea")

    def broken(raw: bytes) -> str:
        raise ValueError(raw.decode())

    monkeypatch.setattr(learning, "_document", broken)
    assert learning.corrections(bench.parts.db.transaction, bench.parts.local) == []
    assert key in caplog.text
    assert "zorglub" not in caplog.text
