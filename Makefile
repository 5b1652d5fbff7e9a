# `make demo` and `make test` do all the set-up themselves. The rest are the few verbs behind them.
.PHONY: help demo demo-once test test-claude setup lint format clean

help:           ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

demo:           ## the whole way of a mail, on a small agency's mailbox; leaves the Dagster UI running until Ctrl-C
	@scripts/setup
	@ATLAS_DEMO=1 exec .venv/bin/atlas demo

demo-once:      ## the same to its end: a JSON summary on stdout, exit 0 only when all came out as expected
	@scripts/setup
	@ATLAS_DEMO=1 exec .venv/bin/atlas demo --once

test:           ## all tests, on real servers
	@scripts/setup test
	@exec .venv/bin/python -m pytest -n auto --maxprocesses=4 --dist=loadfile

test-claude:    ## the real Claude CLI, pinned and installed here, beside the stand-in
	@scripts/setup claude
	@ATLAS_AGENT_BIN=$$(scripts/claude) && export ATLAS_AGENT_BIN && exec .venv/bin/python -m pytest tests/spawn/test_spawn_real_agent.py

setup:          ## only the set-up
	@scripts/setup test

lint:           ## ruff and mypy, as CI runs them
	@scripts/setup test
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check -q .
	@.venv/bin/mypy

format:         ## put the code into ruff's form
	@.venv/bin/ruff check -q --fix . ; .venv/bin/ruff format -q .

clean:          ## forget the demo and the virtual environment
	@rm -rf .atlas .venv .claude-cli .setup.lock .setup.log
