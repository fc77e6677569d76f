"""The time of the event loop under each backend over its time alone, version by version.

    python benchmarks/threads_overhead.py [--rounds 20] [--threads 2] [--events 320]
        [--backends perf,preload] [--sample-period-us 1000]

Each round runs every version alone and under each backend, all in a fresh random order; a ratio is
of two runs of one round. The job's time is from its start to its end, as its user sees it, without
what a backend does before and after. "alone, again" is the null comparison: what this machine shows
where there is no cost.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from perflib.instruments.threads.record import Ran, backends, profile_job, run_alone
from perflib.instruments.threads.settings import Settings
from perflib.measure.jobs.event_loop import VERSIONS, Account, argv
from perflib.model.errors import MeasurementError
from perflib.stats.intervals import robust_mean, t_interval, time_batches

_UNKNOWN = "there is no such backend"
_MOST = 1.05
_ALONE, _AGAIN = "alone", "alone, again"


def run_s(words: list[str], way: str, settings: Settings) -> float:
    """One run of the job, alone or under a backend; its time."""
    if way in (_ALONE, _AGAIN):
        ran = run_alone(words)
    else:
        with tempfile.TemporaryDirectory() as folder:
            ran = profile_job(words, settings, Path(folder) / "recording", way)
    return _checked(ran)


def _checked(ran: Ran) -> float:
    if ran.returncode:
        msg = f"the event loop {ran.problem}"
        raise MeasurementError(msg)
    Account.parse(ran.output)
    return ran.wall_s


def show(claim: str, ratios: list[float], start_s: list[float], most: float | None) -> None:
    """A line: the median of the paired ratios, least and most, the mean with its interval."""
    logs = np.log(np.array(ratios))
    blocks = time_batches(np.array(start_s), len(ratios))
    each = [robust_mean(logs[blocks == n, None])[0] for n in range(blocks.max() + 1)]
    mean, low, high = (math.exp(end) for end in t_interval(np.array(each)))
    middle = statistics.median(ratios)
    verdict = "the null comparison"
    if most is not None:
        verdict = f"at most {most:g}: {'reached' if middle <= most else 'MISSED'}"
    print(
        f"{claim}: {middle:.3f} [{min(ratios):.3f}, {max(ratios):.3f}], "
        f"mean {mean:.3f} ({low:.3f} to {high:.3f}), {verdict}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--events", type=int, default=320)
    parser.add_argument("--backends", default="perf,preload")
    parser.add_argument("--sample-period-us", type=float, default=1000.0)
    asked = parser.parse_args()
    why = backends()
    usable = [name for name in asked.backends.split(",") if not why.get(name, _UNKNOWN)]
    for name in asked.backends.split(","):
        if name not in usable:
            print(f"{name} cannot be used here: {why.get(name, _UNKNOWN)}")
    settings = Settings(sample_period_us=asked.sample_period_us)
    ways = [_ALONE, _AGAIN, *usable]
    jobs = {name: argv(asked.threads, asked.events, points) for name, points in VERSIONS.items()}
    trials = [(version, way) for version in jobs for way in ways]
    times_s: dict[tuple[str, str], list[float]] = {trial: [] for trial in trials}
    start_s: list[float] = []
    rng = random.Random(1)
    for words in jobs.values():  # compiled and read from the disk once
        run_s(words, _ALONE, settings)
    for _ in range(asked.rounds):
        start_s.append(time.monotonic())
        for trial in rng.sample(trials, len(trials)):
            times_s[trial].append(run_s(jobs[trial[0]], trial[1], settings))
    print(f"{asked.threads} threads, {asked.events} events, {asked.rounds} rounds, "
          f"a sample every {asked.sample_period_us:g} us of CPU time")  # fmt: skip
    print("the job's time over its time alone, median of paired ratios [least, most], mean")
    for version in jobs:
        alone = times_s[version, _ALONE]
        print(f"{version}, alone: {statistics.median(alone):.3f} s")
        for way in ways[1:]:
            ratios = [a / b for a, b in zip(times_s[version, way], alone, strict=True)]
            show(f"{version}, {way}", ratios, start_s, None if way == _AGAIN else _MOST)


if __name__ == "__main__":
    main()
