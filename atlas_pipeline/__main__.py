"""``python -m atlas_pipeline`` is the same as ``atlas``."""

from atlas_pipeline.cli import main

main()
