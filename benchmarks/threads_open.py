"""How long a recording of many minutes takes to open, with all its views, and how much memory.

    python benchmarks/threads_open.py [--minutes 10] [--threads 8] [--backend perf] [--folder KEPT]

Records the event loop (version Initial) for so long, then opens the recording in a fresh process:
the timeline's first page, a zoom, locks with paths and holders, concurrency, the trees by waiting
and by CPU time. With ``--folder`` the recording is kept there; one that is there already is opened.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perflib.instruments.threads.record import profile_job
from perflib.instruments.threads.settings import Settings
from perflib.measure.jobs.event_loop import VERSIONS, argv

_FOREVER = 10**7  # events
_MOST_S, _MOST_MB = 10.0, 1024.0

OPEN = """
import json, resource, sys, time
from perflib.instruments.profile.views import bottom_up
from perflib.instruments.threads.concurrency import concurrency
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.samples import cpu_samples, wait_samples
from perflib.instruments.threads.waits import lock_holders, lock_waits, wait_paths
from perflib.lab.threads.figures import concurrency_figure, timeline_figure
from perflib.lab.threads.timeline import timeline

began = time.perf_counter()
done = {}
def took(what):
    done[what] = time.perf_counter() - began
recording = Recording.open(sys.argv[1])
took("open")
view = timeline(recording)
took("timeline")
start, end = recording.start_ns, recording.end_ns
view.zoom(start + (end - start) // 3, start + (end - start) // 2)
took("zoom")
locks = lock_waits(recording)
for lock in locks["lock"][:1]:
    wait_paths(recording, lock)
    lock_holders(recording, lock)
took("locks")
concurrency(recording)
took("concurrency")
bottom_up(wait_samples(recording), weight="period")
bottom_up(cpu_samples(recording), weight="period")
took("trees")
timeline_figure(recording)
concurrency_figure(recording)
took("figures")
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"done": done, "peak_mb": peak_mb, "intervals": len(recording.intervals),
                  "samples": len(recording.samples), "threads": len(recording.threads),
                  "recorded_s": (end - start) / 1e9, "meta": recording.meta["lost"]}))
"""


def record(folder: Path, asked: argparse.Namespace) -> None:
    """The event loop, for so many minutes; it never comes to its end."""
    began = time.monotonic()
    job = subprocess.Popen(
        argv(asked.threads, _FOREVER, VERSIONS["Initial"]), stdout=subprocess.DEVNULL
    )
    try:
        settings = Settings(duration_s=60 * asked.minutes, max_data_mb=20_000)
        profile_job(job.pid, settings, folder, asked.backend, timeout_s=120 * asked.minutes)
    finally:
        job.kill()
        job.wait()
    after_s = time.monotonic() - began - 60 * asked.minutes
    print(f"recorded {asked.minutes:g} minutes; {after_s:.1f} s more to begin, end and convert it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--backend", default="perf")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch) / "recording"
        if not folder.exists():
            record(folder, asked)
        size_mb = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
        said = subprocess.run(
            [sys.executable, "-c", OPEN, str(folder)], check=True, stdout=subprocess.PIPE, text=True
        )
    found = json.loads(said.stdout)
    print(f"{found['recorded_s']:.0f} s of {found['threads']} threads: {found['intervals']:,} "
          f"intervals, {found['samples']:,} samples, {size_mb:.0f} MB on disk; "
          f"lost {found['meta']}")  # fmt: skip
    for what, seconds in found["done"].items():
        print(f"  {what}: after {seconds:.2f} s")
    whole_s = found["done"]["figures"]
    for what, value, unit, most in (
        ("open, all views", whole_s, "s", _MOST_S),
        ("largest memory of that process", found["peak_mb"], "MiB", _MOST_MB),
    ):
        verdict = "reached" if value <= most else "MISSED"
        print(f"{what}: {value:.1f} {unit}, at most {most:g}: {verdict}")


if __name__ == "__main__":
    main()
