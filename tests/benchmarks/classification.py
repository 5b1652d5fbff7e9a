"""A thousand classifications by a provider that takes 200 ms, side by side as far as the routing file allows.

    python -m tests.benchmarks.classification [MAILS]

A loopback server answers after 200 ms. First the classifier alone (prompt, HTTP, reading, guards), then the whole intake of as
many mails through flow, database and scanner. The least there can be is latency times mails over calls at once. Asserts nothing
about time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from atlas_pipeline.ai.providers import Account, build
from atlas_pipeline.ai.router import build_router
from atlas_pipeline.ai.routing import Routing, load
from atlas_pipeline.classify.decide import classify
from atlas_pipeline.classify.facts import ClassifyFacts
from atlas_pipeline.embedded.clamd import EmbeddedClamd
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.flow import intake
from atlas_pipeline.flow.discovery import discover
from atlas_pipeline.flow.parts import opened
from atlas_pipeline.flow.stage import StageFailed
from atlas_pipeline.model import Forward, Trust, TrustLevel
from atlas_pipeline.settings import Settings
from atlas_pipeline.store.migrate import migrate
from tests.benchmarks.intake_tick import write_mails

LATENCY_SECONDS = 0.2
KEY = "test-key-not-a-secret"
# In a process of its own: answers on the event loop, however many are waiting.
_SERVER = f"""
import asyncio, json
ANSWER = {{"model": "scripted", "choices": [{{"finish_reason": "stop", "message": {{"content": json.dumps(
    {{"intent": "question", "confidence": 0.9, "reasoning": "r"}})}}}}], "usage": {{"prompt_tokens": 9, "completion_tokens": 9}}}}
BODY = json.dumps(ANSWER).encode()
async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            length = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0])
            await reader.readexactly(length)
            await asyncio.sleep({LATENCY_SECONDS})
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(BODY) + BODY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextmanager
def provider() -> Iterator[str]:
    """The URL of the slow provider."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def least(routing: Routing, mails: int) -> float:
    """Seconds that no arrangement can beat."""
    return LATENCY_SECONDS * mails / routing.room("mistral")


def alone(url: str, mails: int) -> None:
    """The classifier, from as many threads as calls may run."""
    routing = load(None)
    router = build_router(routing, build({"mistral": Account(KEY, url)}))
    facts = [
        ClassifyFacts(f"Demande {number}", "Bonjour.\n" * 50, Forward(found=False), Trust(TrustLevel.OTHER, "none"))
        for number in range(mails)
    ]
    begun, cpu = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(router.at_once) as pool:
        decisions = list(pool.map(lambda one: classify(one, router, floor=0.5, uncertainty=0.7, language="fr"), facts))
    seconds = time.monotonic() - begun
    assert len(decisions) == mails
    print(
        f"classifier alone: {mails} in {seconds:.1f} s, least {least(routing, mails):.1f} s, {seconds / least(routing, mails):.2f} x; "
        f"{(time.process_time() - cpu) / mails * 1000:.1f} ms CPU each"
    )
    router.close()


def whole(url: str, mails: int, folder: Path) -> None:
    """Intake in ranges of 200, as the sensor asks for it."""
    postgres, clamd = EmbeddedPostgres(folder / "postgres"), EmbeddedClamd(folder / "clamd")
    postgres.ensure()
    try:
        database = postgres.ensure_database("atlas")
        migrate(database)
        write_mails(folder / "maildir", 0, mails)
        settings = Settings(
            home=folder / "home",
            maildir=folder / "maildir",
            clamd=clamd.ensure(),
            MISTRAL_API_KEY=KEY,
            mistral_url=url,
        )
        with opened(settings, database) as parts:
            keys = discover(parts)
            begun = time.monotonic()
            failed, order = 0, []
            for start in range(0, len(keys), 200):
                for report in intake.run(parts, keys[start : start + 200], run_id=f"run-{start}"):
                    failed += isinstance(report, StageFailed)
                    order.append(report.key)
            seconds = time.monotonic() - begun
            routing = parts.models.routing()
            assert list(dict.fromkeys(order)) == keys
            print(
                f"whole intake: {len(keys)} in {seconds:.1f} s, one question at a time would take "
                f"{LATENCY_SECONDS * len(keys):.0f} s for the model alone, least {least(routing, len(keys)):.1f} s; {failed} failed"
            )
    finally:
        clamd.stop()
        postgres.stop()


def main(mails: int) -> None:
    """Both ways."""
    with provider() as url, tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder:
        alone(url, mails)
        whole(url, mails, Path(folder))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
