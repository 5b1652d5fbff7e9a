"""The statistical model behind the local classifier: sentence vectors and TF-IDF, logistic regression.

It learns from ``exemplars.yaml`` and from what operators corrected, in about a second, and gives the same answer on every
machine. The exemplars' vectors and the temperature lie beside them (``exemplar_vectors.npz``, made by ``ai.fit``). ``ai.local``
makes a provider of it; nothing here knows of requests or prompts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any

import yaml

# Measured by tests/benchmarks/local_classifier.py. The vector's weight beside TF-IDF, whose own length is 1 twice.
_VECTOR_WEIGHT = 3.0
_C = 10.0
# What an operator said of real mail of this house weighs more than what was written for all houses.
_CORRECTION_WEIGHT = 2.0
# Embedding takes 0.35 ms of CPU a character up to here, and more beyond: 100 ms, and the rest of a mail says little more.
VECTOR_CHARACTERS = 256
_WORD = r"\b[^\W\d_]{2,}\b"
_MAX_CHARACTERS = 16_000
_TERMS_NAMED = 5
_TERM_MIN_LETTERS = 4
_GREETING = re.compile(
    r"^[ \t]*(?:bonjour|bonsoir|salut|madame|monsieur|ch[eè]re?s?|hello|hi|dear|good (?:morning|afternoon))\b[^\n,.!:?]{0,40}[,.!:]?\s*",
    re.IGNORECASE | re.MULTILINE,
)

Embed = Callable[[str], Sequence[float]]


@dataclass(frozen=True)
class Corrected:
    """A mail that a person judged: its bare text, the right intent, its vector, and a name to be called by."""

    name: str
    document: str = field(repr=False)
    intent: str
    vector: Sequence[float] = field(repr=False)


@dataclass(frozen=True)
class Judgement:
    """One conclusion; ``exemplar`` names the nearest text learned from (``run-07``), ``terms`` are words of those."""

    intent: str
    confidence: float
    exemplar: str
    terms: tuple[str, ...]


def gist(document: str) -> str:
    """The part of a text that is embedded: its beginning, without the greeting that every mail has."""
    text = document[:_MAX_CHARACTERS]
    return (_GREETING.sub("", text).strip() or text)[:VECTOR_CHARACTERS]


def exemplars() -> dict[str, list[str]]:
    """The texts to learn from, by intent."""
    text = files("atlas_pipeline.ai").joinpath("exemplars.yaml").read_text(encoding="utf-8")
    return {intent: [str(one) for one in found] for intent, found in yaml.safe_load(text).items()}


def digest(text: str) -> str:
    """What an exemplar's vector is found by: another text has another."""
    return hashlib.sha256(gist(text).encode()).hexdigest()[:16]


def features(vectoriser: Any, centre: Any, texts: Sequence[str], vectors: Any) -> Any:
    """The rows that are learned from: TF-IDF, and the vector seen from the middle of all, since E5's lie close together."""
    import numpy as np
    from scipy.sparse import csr_matrix, hstack

    seen = np.asarray(vectors, dtype=np.float64) - centre
    seen /= np.maximum(np.linalg.norm(seen, axis=1, keepdims=True), 1e-9)
    return hstack(
        [vectoriser.transform([text[:_MAX_CHARACTERS] for text in texts]), csr_matrix(seen * _VECTOR_WEIGHT)]
    ).tocsr()


def learn(texts: Sequence[str], vectors: Any, intents: Sequence[str], weights: Any = None) -> tuple[Any, Any, Any]:
    """Vectoriser, centre of the vectors, classifier."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_union

    common = {"strip_accents": "unicode", "sublinear_tf": True}
    vectoriser = make_union(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **common),
        TfidfVectorizer(ngram_range=(1, 2), token_pattern=_WORD, **common),
    )
    vectoriser.fit([text[:_MAX_CHARACTERS] for text in texts])
    centre = np.asarray(vectors, dtype=np.float64).mean(axis=0)
    classifier = LogisticRegression(C=_C, max_iter=2000)
    classifier.fit(features(vectoriser, centre, texts, vectors), list(intents), sample_weight=weights)
    return vectoriser, centre, classifier


def probabilities(scores: Any, temperature: float) -> Any:
    """Softmax of the classifier's scores times ``temperature``, which cross-validation chose so that 0.8 means 80 %."""
    import numpy as np

    scaled = np.asarray(scores) * temperature
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@dataclass
class IntentModel:
    """Trained when first asked. Not thread-safe while it trains; ``ai.local`` holds a lock."""

    embed: Embed
    corrections: Sequence[Corrected] = ()

    @cached_property
    def _examples(self) -> list[tuple[str, str, str]]:
        """Name, intent, text."""
        found = [
            (f"{intent}-{number:02d}", intent, text)
            for intent, texts in exemplars().items()
            for number, text in enumerate(texts, 1)
        ]
        return found + [(one.name, one.intent, one.document) for one in self.corrections]

    @cached_property
    def _trained(self) -> tuple[Any, Any, Any, Any, float]:
        """Vectoriser, centre, classifier, the exemplars' own rows, temperature."""
        import numpy as np

        shipped = np.load(str(files("atlas_pipeline.ai").joinpath("exemplar_vectors.npz")), allow_pickle=False)
        known = dict(zip(shipped["digests"].tolist(), shipped["vectors"], strict=True))
        texts = [text for _name, _intent, text in self._examples]
        own = len(texts) - len(self.corrections)
        vectors = [known[digest(text)] if digest(text) in known else self.embed(gist(text)) for text in texts[:own]]
        vectors += [one.vector for one in self.corrections]
        weights = np.array([1.0] * own + [_CORRECTION_WEIGHT] * len(self.corrections))
        intents = [intent for _name, intent, _text in self._examples]
        vectoriser, centre, classifier = learn(texts, np.array(vectors, dtype=np.float64), intents, weights)
        rows = features(vectoriser, centre, texts, np.array(vectors, dtype=np.float64))
        return vectoriser, centre, classifier, rows, float(shipped["temperature"])

    def judge(self, document: str) -> Judgement:
        """The likeliest intent. A text without a word of any language stands for nothing, below every threshold."""
        vectoriser, centre, classifier, learned, temperature = self._trained
        row = features(vectoriser, centre, [document], [self.embed(gist(document))])
        likely = probabilities(classifier.decision_function(row), temperature)[0]
        best = int(likely.argmax())
        nearest = int((learned @ row.T).toarray().ravel().argmax())
        words = _words_known(vectoriser, row)
        return Judgement(
            intent=str(classifier.classes_[best]),
            confidence=round(float(likely[best]), 4) if words else round(1 / len(likely), 4),
            exemplar=self._examples[nearest][0],
            terms=_telling_terms(vectoriser, classifier.coef_[best], row),
        )


def _word_columns(vectoriser: Any) -> tuple[int, Any]:
    """Where the words' columns begin, and their names."""
    characters, words = (part for _name, part in vectoriser.transformer_list)
    return len(characters.vocabulary_), words.get_feature_names_out()


def _words_known(vectoriser: Any, row: Any) -> bool:
    first, names = _word_columns(vectoriser)
    return any(first <= column < first + len(names) for column in row.indices)


def _telling_terms(vectoriser: Any, weights: Any, row: Any) -> tuple[str, ...]:
    """The words that weighed most. All are in the exemplars' vocabulary: no name or number of the mail is."""
    first, names = _word_columns(vectoriser)
    single = re.compile(rf"[^\W\d_]{{{_TERM_MIN_LETTERS},}}")
    weighed = [
        (float(weights[column] * value), str(names[column - first]))
        for column, value in zip(row.indices, row.data, strict=True)
        if first <= column < first + len(names)
    ]
    telling = sorted((item for item in weighed if item[0] > 0 and single.fullmatch(item[1])), reverse=True)
    return tuple(sorted(term for _, term in telling[:_TERMS_NAMED]))
