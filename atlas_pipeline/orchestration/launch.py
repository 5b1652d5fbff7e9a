"""Materialise assets from a program, recorded in the instance as any run is. For the demo's last step; schedules do it otherwise."""

import os
from collections.abc import Mapping, Sequence

import dagster as dg

from atlas_pipeline.orchestration.build import build_definitions


def materialise(names: Sequence[str], *, environment: Mapping[str, str], partition: str | None = None) -> bool:
    """Run these assets here, on the instance that ``environment`` describes; True where the run succeeded."""
    os.environ.update({name: value for name, value in environment.items() if name.startswith(("ATLAS_", "DAGSTER_"))})
    definitions = build_definitions()
    with dg.DagsterInstance.from_config(environment["DAGSTER_HOME"]) as instance:
        result = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(name) for name in names],
            partition_key=partition,
            raise_on_error=False,
            run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}},
        )
    return result.success
