"""Dagster's entry point; ``workspace.yaml`` names it."""

from atlas_pipeline.orchestration.build import build_definitions

defs = build_definitions()
