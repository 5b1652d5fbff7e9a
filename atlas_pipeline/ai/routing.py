"""The routing file: what it may say, and errors that name the line. The providers are made elsewhere (``providers``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import AnswerFormat

COMPLETING = ("mistral", "anthropic", "openai", "claude", "local")
EMBEDDING = ("mistral", "openai", "voyage", "local")
ROOM = 4  # calls side by side where the file does not say
_MAX_BYTES = 1_000_000
_MAX_PROBLEMS = 10

ProviderName = Literal["mistral", "anthropic", "openai", "voyage", "claude", "local"]
Seconds = Annotated[float, Field(gt=0, le=3600)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RouteSpec(_Section):
    """One way to have an answer. ``max_tokens`` and ``temperature`` stand in place of what the caller asks for."""

    provider: ProviderName
    model: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[\w.:/@-]+$")]
    timeout_seconds: Seconds | None = None
    max_tokens: Annotated[int, Field(gt=0, le=200_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    answer_format: AnswerFormat | None = None


class TaskSpec(RouteSpec):
    """A task's first route, and those tried after it; a fall-back without a time-out has the first one's."""

    timeout_seconds: Seconds = 30.0
    fallbacks: tuple[RouteSpec, ...] = ()

    def routes(self) -> Iterator[tuple[RouteSpec, float]]:
        """Each route with its time-out in seconds, in the order in which they are tried."""
        for route in (self, *self.fallbacks):
            yield route, route.timeout_seconds or self.timeout_seconds


class Tasks(_Section):
    """Every task there is."""

    classification: TaskSpec
    embedding: TaskSpec
    completion: TaskSpec

    @field_validator("completion")
    @classmethod
    def _writes(cls, task: TaskSpec) -> TaskSpec:
        if any(route.provider == "local" for route, _seconds in task.routes()):
            raise ValueError("local_writes_nothing")
        return task

    @field_validator("classification", "completion")
    @classmethod
    def _completes(cls, task: TaskSpec) -> TaskSpec:
        if any(route.provider not in COMPLETING for route, _seconds in task.routes()):
            raise ValueError("provider_completes_nothing")
        return task

    @field_validator("embedding")
    @classmethod
    def _embeds(cls, task: TaskSpec) -> TaskSpec:
        if task.provider not in EMBEDDING:
            raise ValueError("provider_embeds_nothing")
        if task.fallbacks:
            raise ValueError("embedding_has_no_fallbacks")
        return task


class OcrSpec(_Section):
    """How pictures are read."""

    engine: Literal["tesseract"] = "tesseract"
    languages: Annotated[str, Field(pattern=r"^[A-Za-z_]{2,20}(\+[A-Za-z_]{2,20})*$")] = "fra+eng"
    timeout_seconds: Seconds = 20.0


class BreakerSpec(_Section):
    """When a provider that fails is left alone, and for how long."""

    failures: Annotated[int, Field(gt=0)] = 5
    rest_seconds: Seconds = 60.0


class BudgetSpec(_Section):
    """The most that may be spent; None is no limit."""

    calls_a_day: Annotated[int, Field(ge=0)] | None = None
    euros_a_day: Amount | None = None
    calls_a_message: Annotated[int, Field(gt=0)] | None = None
    euros_a_message: Amount | None = None


class PriceSpec(_Section):
    """Euros a million tokens."""

    read: Amount
    written: Amount


class Routing(_Section):
    """A whole file."""

    tasks: Tasks
    ocr: OcrSpec = OcrSpec()
    at_once: dict[ProviderName, Annotated[int, Field(gt=0, le=64)]] = {}
    breaker: BreakerSpec = BreakerSpec()
    budget: BudgetSpec = BudgetSpec()
    prices: dict[str, PriceSpec] = {}

    @model_validator(mode="after")
    def _priced(self) -> Routing:
        if (self.budget.euros_a_day, self.budget.euros_a_message) != (None, None) and not self.prices:
            raise ValueError("budget_in_euros_without_prices")
        if self.budget.euros_a_day is not None or self.budget.euros_a_message is not None:
            tasks = (self.tasks.classification, self.tasks.embedding, self.tasks.completion)
            for task in tasks:
                for route, _seconds in task.routes():
                    if route.provider != "local" and self.euros(f"{route.provider}/{route.model}", 1, 1) is None:
                        raise ValueError(f"price_missing of {route.provider}/{route.model}")
        return self

    def room(self, provider: str) -> int:
        """How many calls of a provider may run side by side."""
        return next((size for name, size in self.at_once.items() if name == provider), ROOM)

    def euros(self, model: str, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """What a call of ``provider/model`` costs by the longest name in ``prices`` that fits; None where none does."""
        known = max((name for name in self.prices if model.startswith(name)), key=len, default=None)
        if known is None or (tokens_in is None and tokens_out is None):
            return None
        price = self.prices[known]
        return ((tokens_in or 0) * price.read + (tokens_out or 0) * price.written) / 1_000_000


def load(file: Path | None) -> Routing:
    """The routing of a file, or the one that comes with Atlas.

    Raises NotConfigured: ``ai_routing_unreadable``, or ``ai_routing_invalid`` whose detail names each line, place and problem.
    """
    name = "routing.yaml" if file is None else str(file)
    try:
        if file is None:
            text = files("atlas_pipeline.ai").joinpath(name).read_text("utf-8")
        else:
            with file.open("rb") as stream:
                text = stream.read(_MAX_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise NotConfigured("ai_routing_unreadable", file=name) from None
    return parse(text, name)


def parse(text: str, name: str) -> Routing:
    """The routing of a text; errors as in ``load``."""
    lines: dict[tuple[str, ...], int] = {}
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            problems = [] if node is None else list(_walk(node, (), lines))
            value: Any = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _invalid(name, [f"line {mark.line + 1 if mark else 1}: no YAML"]) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise _invalid(name, ["line 1: no YAML"]) from None
    if problems:
        raise _invalid(name, problems)
    if not isinstance(value, dict):
        raise _invalid(name, ["line 1: no mapping"])
    try:
        return Routing.model_validate(value)
    except ValidationError as error:
        raise _invalid(name, [_told(problem, lines) for problem in error.errors(include_input=False)]) from None


def _invalid(name: str, problems: list[str]) -> NotConfigured:
    return NotConfigured("ai_routing_invalid", file=name, problems="; ".join(problems[:_MAX_PROBLEMS]))


def _told(problem: Mapping[str, Any], lines: Mapping[tuple[str, ...], int]) -> str:
    place = tuple(str(step) for step in problem["loc"] if step != "[key]")
    known = place
    while known and known not in lines:  # what is missing has no line: its section has
        known = known[:-1]
    cause = problem.get("ctx", {}).get("error")
    return f"line {lines.get(known, 1)}: {'.'.join(place) or 'file'}: {cause or problem['type']}"


def _walk(node: yaml.Node, place: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> Iterator[str]:
    """Note each place's line (from 1), and yield what YAML itself would pass over in silence: a key given twice."""
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _walk(item, (*place, str(number)), lines)
    elif isinstance(node, yaml.MappingNode):
        seen = set[str]()
        for key, value in node.value:
            step = str(key.value)
            if step in seen:
                yield f"line {key.start_mark.line + 1}: {'.'.join((*place, step))}: given twice"
            seen.add(step)
            yield from _walk(value, (*place, step), lines)
            lines[(*place, step)] = key.start_mark.line + 1


Stamp = tuple[int, int, int]


def stamp(file: Path | None) -> Stamp | None:
    """What changes when a file does; None for the one that comes with Atlas, and for one that is gone."""
    try:
        status = None if file is None else file.stat()
    except OSError:
        return None
    return None if status is None else (status.st_mtime_ns, status.st_size, status.st_ino)
