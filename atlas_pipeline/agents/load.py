"""The registry file, validated. Writing it into ``atlas.agents`` is the store's."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import yaml

from atlas_pipeline.errors import NotConfigured

FAMILIES = frozenset({"direction", "cadrage", "execution", "validation"})
# Lengths are those of the columns; None is text without a limit.
COLUMNS: dict[str, int | None] = {
    "codename": 64,
    "nickname": 64,
    "role": 255,
    "role_en": 255,
    "group_name": 64,
    "heritage": 255,
    "heritage_en": 255,
    "cognitive_frame": None,
    "cognitive_frame_en": None,
    "personality": None,
    "personality_en": None,
    "quote": None,
    "quote_en": None,
    "inspiration": None,
    "inspiration_en": None,
    "proof": None,
    "proof_en": None,
    "job_mission": None,
    "job_mission_en": None,
    "job_perimeter": None,
    "job_perimeter_en": None,
    "job_key_checks": None,
    "job_key_checks_en": None,
    "content_md": None,
    "prompt_domains": 255,
}
CODENAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)


def load_registry() -> list[dict[str, Any]]:
    """The agents that come with Atlas, one dict of columns each, in the file's order. Raises as ``read_registry``."""
    return read_registry(files("atlas_pipeline.agents").joinpath("registry.yaml").read_text(encoding="utf-8"))


def read_registry(text: str) -> list[dict[str, Any]]:
    """Validate a registry in YAML. Raises NotConfigured ``registry_*`` with the index of the entry and the column."""
    try:
        entries = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise NotConfigured("registry_not_yaml") from None
    if not isinstance(entries, list) or not entries:
        raise NotConfigured("registry_empty")
    agents = [_agent(entry, index) for index, entry in enumerate(entries)]
    codenames = [agent["codename"] for agent in agents]
    if len(set(codenames)) != len(codenames):
        raise NotConfigured("registry_codename_twice")
    return agents


def _agent(entry: object, index: int) -> dict[str, Any]:
    if not isinstance(entry, dict) or set(entry) != {*COLUMNS, "orbite"}:
        raise NotConfigured("registry_columns_differ", entry=index)
    agent = {name: _text(entry[name], name, limit, index) for name, limit in COLUMNS.items()}
    ring = entry["orbite"]
    if isinstance(ring, bool) or not isinstance(ring, int) or ring not in {1, 2, 3}:
        raise NotConfigured("registry_orbite_invalid", entry=index)
    if not CODENAME.fullmatch(agent["codename"]):
        raise NotConfigured("registry_codename_invalid", entry=index)
    if agent["group_name"] not in FAMILIES:
        raise NotConfigured("registry_family_unknown", entry=index)
    return {**agent, "orbite": ring}


def _text(value: object, name: str, limit: int | None, index: int) -> str:
    # prompt_domains may be empty: most agents generate nothing for a domain.
    if not isinstance(value, str) or (not value.strip() and name != "prompt_domains"):
        raise NotConfigured("registry_text_missing", entry=index, column=name)
    if limit is not None and len(value) > limit:
        raise NotConfigured("registry_text_too_long", entry=index, column=name)
    return value.strip()
