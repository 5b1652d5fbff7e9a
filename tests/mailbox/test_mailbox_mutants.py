"""A few hundred of the benchmark's damaged mails: understood as far as it goes, quickly, and storable."""

from __future__ import annotations

import time

from atlas_pipeline.mailbox.parse import parse
from tests.mail_mutants import mutants, originals
from tests.mailbox.test_mailbox_parse import assert_storable


def test_damaged_mails_are_understood_as_far_as_it_goes() -> None:
    for number, raw in enumerate(mutants(400, seed=7, mails=originals())):
        started = time.monotonic()
        mail = parse(raw)
        assert_storable(mail)
        assert "parser_failed" not in mail.remarks, number
        assert time.monotonic() - started < 5, number
