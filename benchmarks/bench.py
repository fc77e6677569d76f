"""Pairs of Python functions, equal and 3 % apart, on a busy machine: who calls what a regression?

    python -m benchmarks.bench [--pairs 20] [--seconds 20] [--others PYTHON] [--quiet]

Each pair is timed by ``pl.bench``, and by pytest-benchmark and pyperf where the interpreter PYTHON
has them (a virtual environment made for this), one tool after the other, each with the same time.
Meanwhile one process a core works and pauses at random, unless --quiet. ``pl.bench`` calls a
function slower where its verdict says so (over 1 %); the others where their ratio of means (of
pyperf: if its t-test is significant, too) is above 1 %, and above 3 %.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import perflib as pl

_LOAD = (
    "import random, sys, time\n"
    "random.seed(int(sys.argv[1]))\n"
    "while True:\n"
    "    end = time.monotonic() + random.expovariate(2)\n"
    "    while time.monotonic() < end: pass\n"
    "    time.sleep(random.expovariate(2))\n"
)
_KINDS = (
    "sum(i * i for i in range({n}))",
    "[i ^ 5 for i in range({n})][-1]",
    "dict.fromkeys(range({n}), 1).get(3)",
    "' '.join(map(str, range({n})))[-1]",
    "sorted(range({n}, 0, -1), key=lambda i: i & 63)[0]",
)
_PYTEST = """
from pair import f, g
def test_g(benchmark): benchmark(g)
def test_f(benchmark): benchmark(f)
"""
_PYPERF = """
import sys
import pyperf
from pair import f, g
runner = pyperf.Runner()
runner.bench_func("g", g)
runner.bench_func("f", f)
"""
_READ = """
import pyperf, sys
suite = pyperf.BenchmarkSuite.load(sys.argv[1])
g, f = suite.get_benchmark("g"), suite.get_benchmark("f")
from pyperf._compare import is_significant
print(f.mean() / g.mean(), int(is_significant(f.get_values(), g.get_values())[0]))
"""


def pair(number: int, percent: float) -> str:
    """The source of two functions: ``f`` has so many percent more to do than ``g``."""
    n = 400 * (1 + number % 4)
    kind = _KINDS[number % len(_KINDS)]
    bodies = {"g": n, "f": round(n * (1 + percent / 100))}
    return "".join(
        f"def {name}():\n    return {kind.format(n=size)}\n" for name, size in bodies.items()
    )


@contextlib.contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """A process a core that works half of the time."""
    argv = [sys.executable, "-c", _LOAD]
    count = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    started = [subprocess.Popen([*argv, str(n)]) for n in range((count or 1) if wanted else 0)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def by_perflib(source: str, seconds: float) -> dict[str, bool]:
    """The verdict of ``pl.bench``."""
    made: dict[str, Any] = {}
    exec(source, made)
    run = pl.bench(made["f"], against=made["g"], budget_s=seconds, precision_percent=0.3)
    (finding,) = run.findings.where(claim="slower")
    print(f"    {run.summary()[0]}")
    slower = finding.verdict == "supported"
    return {"pl.bench": slower, "pl.bench, by 3 %": slower and finding.effect >= 3}


def by_others(source: str, seconds: float, python: str) -> dict[str, bool]:
    """What pytest-benchmark and pyperf make of it, in the same time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pair.py").write_text(source)
        (folder / "test_pair.py").write_text(_PYTEST)
        (folder / "bench.py").write_text(_PYPERF)

        def call(*words: str) -> str:
            return subprocess.run(
                [python, *words], cwd=folder, check=True, capture_output=True, text=True
            ).stdout

        call("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--benchmark-max-time={seconds / 2}",
             "--benchmark-min-rounds=20", "--benchmark-json=out.json")  # fmt: skip
        stats = {
            one["name"]: one["stats"]
            for one in json.loads((folder / "out.json").read_text())["benchmarks"]
        }
        means, medians = (
            100 * (stats["test_f"][key] / stats["test_g"][key] - 1) for key in ("mean", "median")
        )
        processes = max(3, round(seconds / 3))  # of some 1.5 s for each function
        call("bench.py", f"--processes={processes}", "--values=3", "--warmups=1", "--min-time=0.1",
             "-o", "pyperf.json")  # fmt: skip
        ratio, significant = map(float, call("-c", _READ, "pyperf.json").split())
    percent = 100 * (ratio - 1)
    print(f"    pytest-benchmark: mean {means:+.1f} %, median {medians:+.1f} %; "
          f"pyperf: {percent:+.1f} %{', significant' if significant else ''}")  # fmt: skip
    return {
        "pytest-benchmark, mean": means > 1,
        "pytest-benchmark, mean, by 3 %": means > 3,
        "pytest-benchmark, median": medians > 1,
        "pytest-benchmark, median, by 3 %": medians > 3,
        "pyperf": bool(significant) and percent > 1,
        "pyperf, by 3 %": bool(significant) and percent > 3,
    }


def main() -> None:
    """All pairs, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--others", default="", help="an interpreter with pytest-benchmark, pyperf")
    parser.add_argument("--quiet", action="store_true", help="without a load")
    wanted = parser.parse_args()
    os.environ["PERFLIB_PROGRESS"] = "none"
    called: dict[str, dict[float, int]] = {}
    took = dict.fromkeys(("pl.bench", "others"), 0.0)
    with busy(not wanted.quiet):
        for percent in (0.0, 3.0):
            for number in range(wanted.pairs):
                source = pair(number, percent)
                print(f"pair {number}, {percent:g} %", flush=True)
                begun = time.monotonic()
                found = by_perflib(source, wanted.seconds)
                took["pl.bench"] += time.monotonic() - begun
                if wanted.others:
                    begun = time.monotonic()
                    found |= by_others(source, wanted.seconds, wanted.others)
                    took["others"] += time.monotonic() - begun
                for tool, slower in found.items():
                    counts = called.setdefault(tool, {0.0: 0, 3.0: 0})
                    counts[percent] += slower
    print(f"\n| calls f slower | equal pairs, of {wanted.pairs} | 3 % longer, of {wanted.pairs} |")
    print("| -- | --: | --: |")
    for tool, counts in called.items():
        print(f"| {tool} | {counts[0.0]} | {counts[3.0]} |")
    print(*(f"{tool}: {took[tool]:.0f} s" for tool in took), sep="; ")


if __name__ == "__main__":
    main()
