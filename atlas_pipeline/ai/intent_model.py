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
_VECTOR_WEIGHT = 0.7
_C = 10.0
# What an operator said of real mail of this house weighs more than what was written for all houses.
_CORRECTION_WEIGHT = 2.0
# Embedding takes 0.4 ms of CPU a character up to here, and more beyond; what comes after it made nothing better.
VECTOR_CHARACTERS = 400
_VECTOR_BYTES = 600  # a sign of Chinese or an emoji is a word of its own, and takes as long as one
_WORD = r"\b[^\W\d_]{2,}\b"
_MAX_CHARACTERS = 16_000
_TERMS_NAMED = 5
_TERM_MIN_LETTERS = 4
_GREETING = re.compile(
    r"^[ \t]*(?:bonjour|bonsoir|salut|madame|monsieur|ch[eè]re?s?|hello|hi|dear|good (?:morning|afternoon))\b[^\n,.!:?]{0,40}[,.!:]?\s*",
    re.IGNORECASE | re.MULTILINE,
)

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it is built

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
    beginning = (_GREETING.sub("", text).strip() or text)[:VECTOR_CHARACTERS]
    return beginning.encode("utf-8", "replace")[:_VECTOR_BYTES].decode("utf-8", "ignore")


def exemplars() -> dict[str, list[str]]:
    """The texts to learn from, by intent."""
    text = files("atlas_pipeline.ai").joinpath("exemplars.yaml").read_text(encoding="utf-8")
    return {intent: [str(one) for one in found] for intent, found in yaml.load(text, Loader=_Loader).items()}  # noqa: S506  # a safe one


def digest(text: str) -> str:
    """What an exemplar's vector is found by: another text has another."""
    return hashlib.sha256(gist(text).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Learned:
    """What was learned of texts and their vectors: one weight a class and feature, one offset a class; ``rows`` are the texts' own."""

    classes: tuple[str, ...]
    vectoriser: Any
    centre: Any
    weights: Any
    offsets: Any
    rows: Any

    @cached_property
    def words(self) -> tuple[int, Any]:
        """Where the words' columns begin, and the words."""
        characters, words = (part for _name, part in self.vectoriser.transformer_list)
        return len(characters.vocabulary_), words.get_feature_names_out()

    def words_of(self, row: Any) -> list[tuple[str, int, float]]:
        """The words of a row that were ever learned: the word, its column, its value."""
        first, names = self.words
        return [
            (str(names[column - first]), int(column), float(value))
            for column, value in zip(row.indices, row.data, strict=True)
            if first <= column < first + len(names)
        ]

    def features(self, texts: Sequence[str], vectors: Any) -> Any:
        """One sparse row a text."""
        return _features(self.vectoriser.transform(_bounded(texts)), self.centre, vectors)

    def scores(self, rows: Any) -> Any:
        """One score a class for each row of ``features``."""
        return rows @ self.weights.T + self.offsets


def _bounded(texts: Sequence[str]) -> list[str]:
    return [text[:_MAX_CHARACTERS] for text in texts]


def _features(counted: Any, centre: Any, vectors: Any) -> Any:
    """TF-IDF (``counted``), and the vector seen from the middle of all, since E5's lie close together."""
    import numpy as np
    from scipy.sparse import csr_matrix, hstack

    seen = np.asarray(vectors, dtype=np.float64) - centre
    seen /= np.maximum(np.linalg.norm(seen, axis=1, keepdims=True), 1e-9)
    return hstack([counted, csr_matrix(seen * _VECTOR_WEIGHT)]).tocsr()


def learn(texts: Sequence[str], vectors: Any, intents: Sequence[str], importance: Any = None) -> Learned:
    """Logistic regression, found in the space that the texts themselves span: the same answer as in that of the 60,000 features.

    A tenth of the time, since there are far fewer texts than features. ``importance`` weighs each text.
    """
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_union

    common = {"strip_accents": "unicode", "sublinear_tf": True}
    vectoriser = make_union(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **common),
        TfidfVectorizer(ngram_range=(1, 2), token_pattern=_WORD, **common),
    )
    counted = vectoriser.fit_transform(_bounded(texts))
    centre = np.asarray(vectors, dtype=np.float64).mean(axis=0)
    rows = _features(counted, centre, vectors)
    strengths, directions = np.linalg.eigh((rows @ rows.T).toarray())
    kept = strengths > strengths.max() * 1e-10
    lengths, directions = np.sqrt(strengths[kept]), directions[:, kept]
    classifier = LogisticRegression(C=_C, max_iter=2000)
    classifier.fit(directions * lengths, list(intents), sample_weight=importance)
    weights = (rows.T @ ((directions / lengths) @ classifier.coef_.T)).T
    classes = tuple(str(one) for one in classifier.classes_)
    return Learned(classes, vectoriser, centre, weights, classifier.intercept_, rows)


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
    def _shipped_words(self) -> frozenset[str] | None:
        """Words of the exemplars that come with Atlas: those of corrected mails may be names. None where there are no others."""
        if not self.corrections:
            return None
        _characters, words = (part for _name, part in self._trained[0].vectoriser.transformer_list)
        analyse = words.build_analyzer()
        shipped = self._examples[: -len(self.corrections)]
        return frozenset(word for _name, _intent, text in shipped for word in analyse(text))

    @cached_property
    def _trained(self) -> tuple[Learned, float]:
        """What was learned, and the temperature."""
        import numpy as np

        shipped = np.load(str(files("atlas_pipeline.ai").joinpath("exemplar_vectors.npz")), allow_pickle=False)
        known = dict(zip(shipped["digests"].tolist(), shipped["vectors"], strict=True))
        texts = [text for _name, _intent, text in self._examples]
        own = len(texts) - len(self.corrections)
        found = []
        for text in texts[:own]:
            vector = known.get(digest(text))
            found.append(self.embed(gist(text)) if vector is None else vector)
        vectors = np.array([*found, *(one.vector for one in self.corrections)], dtype=np.float64)
        importance = np.array([1.0] * own + [_CORRECTION_WEIGHT] * len(self.corrections))
        learned = learn(texts, vectors, [intent for _name, intent, _text in self._examples], importance)
        return learned, float(shipped["temperature"])

    def judge(self, document: str) -> Judgement:
        """The likeliest intent. A text without a word that was ever learned stands for nothing, below every threshold."""
        learned, temperature = self._trained
        row = learned.features([document], [self.embed(gist(document))])
        likely = probabilities(learned.scores(row), temperature)[0]
        best = int(likely.argmax())
        nearest = int((learned.rows @ row.T).toarray().ravel().argmax())
        words = learned.words_of(row)
        return Judgement(
            intent=learned.classes[best],
            confidence=round(float(likely[best]) if words else 1 / len(likely), 4),
            exemplar=self._examples[nearest][0],
            terms=_telling(
                [one for one in words if self._shipped_words is None or one[0] in self._shipped_words],
                learned.weights[best],
            ),
        )


def _telling(words: Sequence[tuple[str, int, float]], weights: Any) -> tuple[str, ...]:
    """The words that weighed most. All are in the exemplars' vocabulary: no name or number of the mail is."""
    single = re.compile(rf"[^\W\d_]{{{_TERM_MIN_LETTERS},}}")
    weighed = sorted(((float(weights[column]) * value, word) for word, column, value in words), reverse=True)
    telling = [word for weight, word in weighed if weight > 0 and single.fullmatch(word)]
    return tuple(sorted(telling[:_TERMS_NAMED]))
