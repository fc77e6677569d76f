"""How long lists, queries and imports of thousands of runs take.

    python benchmarks/store.py [--runs 2000] [--many 10000] [--imported 3000] [--repetitions 7]

The runs are the stored ones of the tests with their findings and levels, cut to twenty samples each
(those to be imported: to 8,000); their provenance is whole. Each round lists stores of so many
runs, one of them with every hundredth file cut off, and asks the largest for its findings, beside a
bare Python and the list of an empty store. The index is there, as after any list; what it takes to
make it is measured once. Printed are the median [least, most] of the times and, paired within
rounds, of their ratio to a bare Python, which moves less with the machine's load. The import is
measured once, into an empty store.
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

from perflib.experiments import get
from perflib.store import run_files

_STORED = Path(__file__).parents[1] / "tests" / "data" / "runs"
_SAMPLES, _SAMPLES_IMPORTED = 20, 8000
_FINDINGS = (
    "SELECT node, claim, count(*) AS found, median(effect) FROM findings "
    "WHERE verdict = 'supported' GROUP BY ALL ORDER BY found DESC LIMIT 20"
)
_BARE = "a bare Python"
_IMPORT_S = 30.0


def _kinds(home: Path) -> list[tuple[str, bytes]]:
    """A file of each experiment."""
    kinds = []
    for path in sorted(_STORED.glob("*.parquet")):
        run = run_files.load(path)
        if run.experiment == "alias_map":  # its levels are 3,000: no run of a farm
            continue
        cut = replace(run, samples=run.samples.head(_SAMPLES))
        said = get(run.experiment).reported(run)
        kinds.append((run.experiment, run_files.save(cut, home / path.name, said).read_bytes()))
    return kinds


def _make(home: Path, count: int, damaged_every: int) -> None:
    """A store of so many runs."""
    runs = home / "runs"
    runs.mkdir(parents=True)
    kinds = _kinds(home)
    for number in range(count):
        experiment, content = kinds[number % len(kinds)]
        if damaged_every and number % damaged_every == 0:
            content = content[: len(content) // 2]
        day, second = 1 + number // 86400, number % 86400
        clock = f"{second // 3600:02}{second // 60 % 60:02}{second % 60:02}"
        name = f"{experiment}-202601{day:02}-{clock}-node17-{number:010}"
        (runs / f"{name}.parquet").write_bytes(content)


def _make_foreign(folder: Path, count: int) -> None:
    """Runs of kv_per_core as a farm returns them: each of its own, as imports compare their ids."""
    folder.mkdir()
    run = run_files.load(_STORED / "kv_per_core.parquet")
    cut = replace(run, samples=run.samples.head(_SAMPLES_IMPORTED))
    said = get("kv_per_core").reported(cut)
    for number in range(count):
        own = f"kv_per_core-20260101-000000-node{number % 400}-{number:010}"
        run_files.write_run(replace(cut, id=own), folder / f"{number}.parquet", said)


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
    """Print one line a store and a question."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--imported", type=int, default=3000)
    parser.add_argument("--repetitions", type=int, default=7)
    given = parser.parse_args()
    perflib = ["-m", "perflib"]
    listed = [*perflib, "runs"]
    with tempfile.TemporaryDirectory(prefix="perflib-store-") as folder:
        top = Path(folder)
        _make(top / "whole", given.runs, 0)
        _make(top / "damaged", given.runs, 100)
        _make(top / "many", given.many, 0)
        cases = {  # what is run, where, and within how many seconds
            _BARE: (["-c", "pass"], top / "empty", None),
            "an empty store": (listed, top / "empty", None),
            f"{given.runs} runs": (listed, top / "whole", 1.0),
            f"{given.runs} runs, every hundredth damaged": (listed, top / "damaged", 1.0),
            f"{given.many} runs": (listed, top / "many", 2.0),
            f"findings of {given.many} runs": (
                [*perflib, "query", _FINDINGS], top / "many", None
            ),
        }  # fmt: skip
        for name, (words, home, _) in cases.items():  # what was never imported is compiled first
            print(f"{name}, for the first time: {_timed(words, home):.2f} s", flush=True)
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(given.repetitions):
            for name in random.sample(list(cases), len(cases)):
                times[name].append(_timed(*cases[name][:2]))
        _print(times, {name: most for name, (*_, most) in cases.items()})
        _make_foreign(top / "foreign", given.imported)
        taken = _timed([*perflib, "import", str(top / "foreign")], top / "importing")
        verdict = "reached" if taken <= _IMPORT_S else "MISSED"
        print(
            f"import of {given.imported} files: {taken:.1f} s; at most {_IMPORT_S:g} s: {verdict}"
        )


def _print(times: dict[str, list[float]], limits: dict[str, float | None]) -> None:
    for name, taken in times.items():
        ratios = [one / bare for one, bare in zip(taken, times[_BARE], strict=True)]
        line = f"{name}: {_words(taken, 2)} s, {_words(ratios, 0)} times a bare Python"
        if (most := limits[name]) is not None:
            reached = "reached" if statistics.median(taken) <= most else "MISSED"
            line += f"; at most {most:g} s: {reached}"
        print(line)


if __name__ == "__main__":
    main()
