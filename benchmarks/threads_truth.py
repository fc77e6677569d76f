"""The profile's waiting time lock by lock, compared with the job's self-reported waits.

    python benchmarks/threads_truth.py [--runs 10] [--threads 2] [--events 320]
        [--backends perf,preload]

Each run of the event loop is recorded, and reports its waits itself at its end: the differences
are of one and the same run. Versions and backends alternate in random order. A lock with less than
a hundredth of a run's waiting is shown, but not judged. The backends' agreement is the difference
between their medians, in percent of the self-reported waits.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from perflib.instruments.threads.record import backends, profile_job
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import Settings
from perflib.instruments.threads.waits import lock_waits
from perflib.measure.jobs.event_loop import VERSIONS, Account, argv
from perflib.model.errors import MeasurementError

_UNKNOWN = "there is no such backend"
_MOST_PERCENT = 5.0
_LEAST_SHARE = 0.01  # of a run's waiting


def base(name: str) -> str:
    """The symbol of a lock that lies within an object: task_queue+0x28 is in task_queue."""
    return name.partition("+")[0]


def deviations(recording: Recording, account: Account) -> dict[str, tuple[float, float]]:
    """By lock, the profile's waiting over the reported in percent, and its share of the run's."""
    table = lock_waits(recording)
    profiled: dict[str, float] = defaultdict(float)
    for name, seconds in zip(table["name"], table["total_s"], strict=True):
        profiled[base(name)] += seconds
    waited = account.waiting_s()
    total = sum(waited.values())
    return {
        name: (100 * (profiled[name] / seconds - 1), seconds / total)
        for name, seconds in waited.items()
        if seconds
    }


class Version(NamedTuple):
    """What was seen of one version: which lock was waited for longest, shares, deviations."""

    first: list[str]
    shares: dict[str, list[float]]  # by lock
    named: dict[str, int]  # by backend: how often it named that lock first
    percent: dict[str, dict[str, list[float]]]  # by backend and lock


def take(words: Sequence[str], backend: str, seen: Version) -> None:
    """One run of the job, recorded."""
    with tempfile.TemporaryDirectory() as folder:
        done = profile_job(words, Settings(), Path(folder) / "recording", backend)
        if done.returncode:
            msg = f"the event loop {done.problem}"
            raise MeasurementError(msg)
        account = Account.parse(done.output)
        first = next(iter(account.waiting_s()))
        limiting = lock_waits(done.recording)["name"][:1]
        seen.first.append(first)
        seen.named[backend] += [base(name) for name in limiting] == [first]
        for lock, (percent, share) in deviations(done.recording, account).items():
            seen.percent[backend][lock].append(percent)
            seen.shares[lock].append(share)


def show(version: str, seen: Version, runs: int) -> None:
    """A line for each figure of a version."""
    limits = (f"{lock} in {seen.first.count(lock)}" for lock in sorted(set(seen.first)))
    print(f"{version}: waited for longest: {', '.join(limits)} of {len(seen.first)} runs")
    shares = {lock: statistics.median(values) for lock, values in seen.shares.items()}
    locks = sorted(shares, key=shares.__getitem__, reverse=True)
    for backend, times in seen.named.items():
        print(
            f"{version}, {backend}: that lock named first in {times} of {runs} runs: "
            f"{'reached' if times == runs else 'MISSED'}"
        )
        for lock in locks:
            if not (values := seen.percent[backend][lock]):
                continue
            good = sum(abs(value) <= _MOST_PERCENT for value in values)
            middle = statistics.median(values)
            verdict = "reached" if abs(middle) <= _MOST_PERCENT else "MISSED"
            print(
                f"{version}, {backend}, {lock} "
                f"({100 * shares[lock]:.1f} % of the waiting): "
                f"{middle:+.2f} percent [{min(values):+.2f}, {max(values):+.2f}], within "
                f"{_MOST_PERCENT:g} in {good} of {len(values)} runs: "
                f"{verdict if shares[lock] >= _LEAST_SHARE else 'not judged'}"
            )
    for one, other in itertools.combinations(seen.percent, 2):
        for lock in locks:
            both = [seen.percent[backend][lock] for backend in (one, other)]
            if all(both) and shares[lock] >= _LEAST_SHARE:
                apart = abs(statistics.median(both[0]) - statistics.median(both[1]))
                print(
                    f"{version}, {lock}: {one} and {other} differ by {apart:.2f} percent, within "
                    f"{_MOST_PERCENT:g}: {'reached' if apart <= _MOST_PERCENT else 'MISSED'}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--events", type=int, default=320)
    parser.add_argument("--backends", default="perf,preload")
    asked = parser.parse_args()
    why = backends()
    usable = [name for name in asked.backends.split(",") if not why.get(name, _UNKNOWN)]
    for name in asked.backends.split(","):
        if name not in usable:
            print(f"{name} cannot be used here: {why.get(name, _UNKNOWN)}")
    seen = {
        version: Version(
            [], defaultdict(list), dict.fromkeys(usable, 0),
            {backend: defaultdict(list) for backend in usable},
        )
        for version in VERSIONS
    }  # fmt: skip
    trials = list(itertools.product(VERSIONS, usable))
    rng = random.Random(1)
    for _ in range(asked.runs):
        for version, backend in rng.sample(trials, len(trials)):
            take(argv(asked.threads, asked.events, VERSIONS[version]), backend, seen[version])
    print(f"{asked.threads} threads, {asked.events} events, {asked.runs} runs of each")
    print("the profile's waiting less the self-reported, median over runs [least, most]")
    for version, found in seen.items():
        show(version, found, asked.runs)


if __name__ == "__main__":
    main()
