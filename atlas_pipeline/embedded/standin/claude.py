#!/usr/bin/env python3
"""Executed in the place of the ``claude`` program; all of it is in ``program``, beside this file."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # Last on the path: the parent folder holds modules that are not meant to hide anybody else's.
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    sys.exit(importlib.import_module("standin.program").main(sys.argv[1:]))
