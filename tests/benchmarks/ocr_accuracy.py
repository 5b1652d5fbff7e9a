"""How well pictures are read and what that costs, beside the bare ``tesseract`` command on the same files.

    python -m tests.benchmarks.ocr_accuracy [FOLDER]     (FOLDER: keep the pictures there, to look at)

Screenshots drawn in Chromium and photographs of them (``tests/ocr_screens.py``). All in one run. Asserts nothing.
"""

from __future__ import annotations

import hashlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from atlas_pipeline.mailbox.sniff import sniff
from atlas_pipeline.model import Part
from atlas_pipeline.ocr.engine import Tesseract
from atlas_pipeline.ocr.mail import read_images
from atlas_pipeline.ocr.reader import Reader
from tests.ocr_screens import Screen, error_rate, screens, sideways

LANGUAGES = "fra+eng"


def processor_seconds() -> float:
    """CPU time of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def bare(file: Path, environment: Mapping[str, str]) -> tuple[str, float]:
    """What the command says of the file as it is, and its CPU seconds."""
    begun = processor_seconds()
    done = subprocess.run(
        ["tesseract", str(file), "stdout", "-l", LANGUAGES],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.stdout.decode("utf-8", "replace"), processor_seconds() - begun


def accuracy(drawn: Sequence[Screen], reader: Reader, folder: Path) -> None:
    """The two tables: error rates by kind, and CPU seconds an image."""
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    costs = [0.0, 0.0, 0.0]
    for number, screen in enumerate(drawn):
        file = folder / f"{number:02d} {screen.name}.img"
        file.write_bytes(screen.image)
        _, costs_many = bare(file, {})
        raw, costs_one = bare(file, {"OMP_THREAD_LIMIT": "1"})
        begun = processor_seconds()
        text = reader.read(screen.image, sniff(screen.image, ""), seconds=60).text.reveal()
        costs = [costs[0] + costs_many, costs[1] + costs_one, costs[2] + processor_seconds() - begun]
        errors[screen.kind].append((100 * error_rate(raw, screen.text), 100 * error_rate(text, screen.text)))
    print(
        f"{'wrong characters, %':<22}{'images':>8}{'bare median':>13}{'ours median':>13}{'bare worst':>12}{'ours worst':>12}"
    )
    everything = [pair for pairs in errors.values() for pair in pairs]
    for kind, pairs in [*errors.items(), ("all", everything)]:
        one, two = zip(*pairs, strict=True)
        print(
            f"{kind:<22}{len(pairs):>8}{statistics.median(one):>13.2f}{statistics.median(two):>13.2f}{max(one):>12.1f}{max(two):>12.1f}"
        )
    many, one_thread, ours = (cost / len(drawn) for cost in costs)
    print(f"\nCPU seconds an image: bare {many:.2f}, bare with one thread {one_thread:.2f}, ours {ours:.2f}")
    print(f"ours / bare {ours / many:.2f}, ours / bare with one thread {ours / one_thread:.2f}")


def turned(drawn: Sequence[Screen], reader: Reader) -> None:
    """Photographs that lie on their side, with nothing that says so."""
    rates = [
        100 * error_rate(reader.read(sideways(one.image, degrees), "image/jpeg", seconds=60).text.reveal(), one.text)
        for one in drawn
        if one.kind == "photo"
        for degrees in (90, 180, 270)
    ]
    print(f"photos on their side: {len(rates)}, median {statistics.median(rates):.2f} %, worst {max(rates):.1f} %")


def throughput(drawn: Sequence[Screen], reader: Reader) -> None:
    """All images as one mail's, one at a time and two at once; and a mail without any."""
    parts = [
        Part(
            number,
            None,
            "",
            sniff(one.image, ""),
            len(one.image),
            hashlib.sha256(one.image).hexdigest(),
            False,
            one.image,
        )
        for number, one in enumerate(drawn)
    ]
    seconds = []
    for at_once in (1, 2):
        begun = time.monotonic()
        read_images(parts, reader, max_images=len(parts), mail_seconds=600, at_once=at_once)
        seconds.append(time.monotonic() - begun)
    print(
        f"{len(parts)} images: one at a time {seconds[0]:.1f} s, two at once {seconds[1]:.1f} s, {seconds[0] / seconds[1]:.2f} times as fast"
    )
    text = Part(0, None, "text/plain", "text/plain", 4, "", False, b"text")
    begun = time.monotonic()
    for _ in range(1000):
        read_images([text], reader, max_images=10)
    print(f"a mail without images: {time.monotonic() - begun:.4f} ms")


def main(folder: Path | None) -> None:
    """Draw, read, print."""
    drawn = screens()
    reader = Reader(Tesseract(languages=LANGUAGES, timeout_seconds=60), max_pixels=40_000_000)
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as temporary:
        kept = folder or Path(temporary)
        kept.mkdir(exist_ok=True)
        accuracy(drawn, reader, kept)
    turned(drawn, reader)
    throughput(drawn, reader)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
