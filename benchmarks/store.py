"""How long `perflib runs` takes in a store of two thousand runs, some of them damaged.

    python benchmarks/store.py [--runs 2000] [--repetitions 7]

The runs are the stored ones of the tests, cut to twenty samples each; their provenance is whole.
Each round lists a store once with all files whole and once with every hundredth cut off, beside a
bare Python and the list of an empty store. Printed are the median [least, most] of the times and,
paired within rounds, of their ratio to a bare Python, which moves less with the machine's load.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from perflib.model import store

_STORED = Path(__file__).parents[1] / "tests" / "data" / "runs"
_AT_MOST_S = 1.0
_SAMPLES = 20
_BARE = "a bare Python"


def _make(home: Path, count: int, damaged_every: int) -> None:
    """A store of so many runs."""
    runs = home / "runs"
    runs.mkdir(parents=True)
    kinds = []
    for path in sorted(_STORED.glob("*.parquet")):
        run = store.load(path)
        cut = replace(run, samples=run.samples.head(_SAMPLES))
        kinds.append((run.experiment, store.save(cut, home / path.name).read_bytes()))
    for number in range(count):
        experiment, content = kinds[number % len(kinds)]
        if damaged_every and number % damaged_every == 0:
            content = content[: len(content) // 2]
        day, second = 1 + number // 86400, number % 86400
        clock = f"{second // 3600:02}{second // 60 % 60:02}{second % 60:02}"
        name = f"{experiment}-202601{day:02}-{clock}-node17-{number:010}"
        (runs / f"{name}.parquet").write_bytes(content)


def _timed(words: list[str], home: Path) -> float:
    begin = time.perf_counter()
    environment = {**os.environ, "PERFLIB_HOME": str(home), "PERFLIB_CONFIG": "none"}
    subprocess.run(
        [sys.executable, *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    return time.perf_counter() - begin


def _words(values: list[float], digits: int) -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} [{least:.{digits}f}, {most:.{digits}f}]"


def main() -> None:
    """Print one line a store."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--repetitions", type=int, default=7)
    given = parser.parse_args()
    listed = ["-m", "perflib", "runs"]
    with tempfile.TemporaryDirectory(prefix="perflib-store-") as folder:
        top = Path(folder)
        _make(top / "whole", given.runs, 0)
        _make(top / "damaged", given.runs, 100)
        cases = {
            _BARE: (["-c", "pass"], top / "empty"),
            "an empty store": (listed, top / "empty"),
            f"{given.runs} runs": (listed, top / "whole"),
            f"{given.runs} runs, every hundredth damaged": (listed, top / "damaged"),
        }
        times: dict[str, list[float]] = {name: [] for name in cases}
        for case in cases.values():  # what was never imported is compiled first
            _timed(*case)
        for _ in range(given.repetitions):
            for name in random.sample(list(cases), len(cases)):
                times[name].append(_timed(*cases[name]))
    for name, taken in times.items():
        ratios = [one / bare for one, bare in zip(taken, times[_BARE], strict=True)]
        reached = "reached" if statistics.median(taken) <= _AT_MOST_S else "MISSED"
        print(
            f"{name}: {_words(taken, 2)} s, {_words(ratios, 0)} times a bare Python; "
            f"at most {_AT_MOST_S:g} s: {reached}"
        )


if __name__ == "__main__":
    main()
