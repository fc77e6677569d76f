"""How long a ten-minute recording of 64 threads takes until its timeline is drawn, and its size.

    PYTHONPATH=. python benchmarks/timeline_opening.py [--minutes 10] [--threads 64] [--folder KEPT]

The recording is made, not measured: 200 intervals a second and thread. The notebook's view is
opened in a fresh process (with the imports that a notebook pays once), the page that stands alone
in headless Chromium, until the names of the threads are there. Each is opened five times.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perflib.instruments.threads.recording import Recording
from perflib.lab.threads.standalone import write_html
from tests.browser.conftest import started_browser
from tests.instruments.threads.made import made_recording

_MOST_S, _MOST_MB = 3.0, 10.0
_TIMES = 5
_OPEN = """
import sys, time
began = time.perf_counter()
from perflib.instruments.threads.recording import Recording
from perflib.lab.threads.views import thread_view
imported = time.perf_counter()
thread_view(Recording.open(sys.argv[1]))
print(imported - began, time.perf_counter() - imported)
"""


def in_a_notebook(folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of the imports, and of the view."""
    argv = [sys.executable, "-c", _OPEN, str(folder)]
    said = [
        subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
        for _ in range(_TIMES)
    ]
    return [float(one[0]) for one in said], [float(one[1]) for one in said]


def alone(path: Path) -> list[float]:
    """Seconds until the threads' names are drawn, each time in a page of its own."""
    took = []
    with started_browser() as browser:
        for _ in range(_TIMES):
            page = browser.new_page(viewport={"width": 1300, "height": 1000})
            began = time.perf_counter()
            page.goto(path.as_uri())
            page.locator(".perflib-timeline-name").first.wait_for()
            took.append(time.perf_counter() - began)
            page.close()
    return took


def report(what: str, values: list[float], unit: str, most: float) -> None:
    middle = statistics.median(values)
    verdict = "reached" if middle <= most else "MISSED"
    ends = f"{min(values):.2f} to {max(values):.2f}"
    print(f"{what}: {middle:.2f} {unit} ({ends}), at most {most:g}: {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch) / "recording"
        if not folder.exists():
            made_recording(folder, asked.threads, 60 * asked.minutes, cpus=asked.threads)
        path = Path(scratch) / "page.html"
        recording = Recording.open(folder)
        began = time.perf_counter()
        write_html(recording, path)
        print(f"{len(recording.intervals):,} intervals of {len(recording.threads)} threads; the "
              f"page was written in {time.perf_counter() - began:.1f} s")  # fmt: skip
        imports, views = in_a_notebook(folder)
        print(f"load {os.getloadavg()[0]:.1f}; imports {statistics.median(imports):.2f} s")
        report("the notebook's view", views, "s", _MOST_S)
        report("the page that stands alone", alone(path), "s", _MOST_S)
        report("its size", [path.stat().st_size / 1e6], "MB", _MOST_MB)


if __name__ == "__main__":
    main()
