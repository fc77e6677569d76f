"""What each solution of the code to mend saves here, quiet and beside a load, with null tests.

    .venv/bin/python -m benchmarks.fix_it --budget-s 30
    .venv/bin/python -m benchmarks.fix_it --load
    .venv/bin/python -m benchmarks.fix_it --record intel-guest

The load is a Python loop on each core that works for half of each 20 ms. A recording goes to
``perflib/course/fix/recordings``, from where ``bench(recorded=...)`` takes it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perflib.course.fix import fix, recorded
from perflib.course.fix.bench import Bench
from perflib.course.fix.problems import NAMES

BUSY = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
parent = os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + 0.01
    while time.monotonic() < end:
        pass
    time.sleep(0.01)
"""


def record_of(found: Bench, way: str) -> dict[str, Any]:
    """A comparison as a recording has it."""
    times = found.times().pivot_table(index="batch", columns="version", values="call_ns")
    share, words = found.compared.samples
    return {
        "problem": found.problem,
        "way": way,
        "start": found.provenance["start"],
        "rounds": found.provenance["rounds"],
        "load_average": round(found.provenance["load_average"], 1),
        "ratios": [round(ratio, 6) for ratio in found.compared.ratios],
        "original_ns": times["original"].round(1).tolist(),
        "yours_ns": times["yours"].round(1).tolist(),
        "share": round(share, 4),
        "words": words,
    }


@contextmanager
def load(wanted: bool) -> Iterator[None]:
    cores = sorted(os.sched_getaffinity(0)) if wanted else []
    busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(core)]) for core in cores]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, help="problems (default: all)")
    parser.add_argument("--budget-s", type=float, default=20.0, help="of each comparison")
    parser.add_argument("--load", action="store_true", help="beside a load on each core")
    parser.add_argument("--record", metavar="MACHINE", help="write MACHINE.json")
    options = parser.parse_args()
    records = []
    with load(options.load):
        for name in options.names:
            problem = fix(name)
            for way in ("mended", *problem.problem.others):
                found = problem.possible(budget_s=options.budget_s, which=way)
                times = found.times().groupby("version")["call_ns"].agg(["min", "median", "max"])
                print(f"{way}: {found!r}")
                print(times.round(0).to_string(), flush=True)
                records.append(record_of(found, way))
            null = problem.bench(problem.code, budget_s=options.budget_s)
            print(f"null test: {null.compared}", flush=True)
    if options.record:
        folder = Path(recorded.__file__).parent / "recordings"
        folder.mkdir(exist_ok=True)
        path = folder / f"{options.record}.json"
        path.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")
        print(path)


if __name__ == "__main__":
    main()
