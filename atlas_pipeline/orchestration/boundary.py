"""What leaves a body for Dagster's event log: a code and a place in our own code, never the words of an exception.

A library's message may quote the mail it choked on, and so may the chain of causes; both end in the event log for ever.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from atlas_pipeline.errors import AtlasError, place_of
from atlas_pipeline.flow.parts import Parts, from_environment


@contextmanager
def codes_only() -> Iterator[None]:
    """Turn any exception into a Failure that Dagster does not retry; an interrupt passes through."""
    try:
        yield
    except dg.Failure:
        raise
    except AtlasError as error:
        raise dg.Failure(str(error), metadata={"where": place_of(error)}, allow_retries=False) from None
    except Exception as error:  # noqa: BLE001  # the last place where its words can be kept out of the event log
        raise dg.Failure(
            f"unexpected_{type(error).__name__}", metadata={"where": place_of(error)}, allow_retries=False
        ) from None


@contextmanager
def bounded_parts() -> Iterator[Parts]:
    """``from_environment`` inside ``codes_only``: how every body begins."""
    with codes_only(), from_environment() as parts:
        yield parts
