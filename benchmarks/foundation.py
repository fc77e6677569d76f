"""What the foundation costs: kernels from the cache, cold compilation, workers, bookkeeping.

    python benchmarks/foundation.py [--repetitions 15]

Each line is a claim of the README, its figure as median [least, most] over paired repetitions.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from perflib import kernels
from perflib.experiments import get
from perflib.kernels import build, source
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker

_READY = """
import time
from perflib.kernels import load
load({other!r})  # imports and the compiler's version are the process's, not the kernel's
begin = time.perf_counter()
load({name!r})
print(time.perf_counter() - begin)
"""


def _show(claim: str, values: Sequence[float], unit: str, limit: float) -> None:
    middle = statistics.median(values)
    verdict = "reached" if middle <= limit else "MISSED"
    print(
        f"{claim}: {middle:.3g} {unit} [{min(values):.3g}, {max(values):.3g}], "
        f"at most {limit:g}: {verdict}",
        flush=True,
    )


def cached_kernel(repetitions: int) -> None:
    """A kernel that was compiled before, in a process that has loaded another one."""
    code = _READY.format(other="cpuid", name="clock_gaps")
    for name in ("cpuid", "clock_gaps"):
        build(name)
    times = [
        1e3 * float(subprocess.check_output([sys.executable, "-c", code]))
        for _ in range(repetitions)
    ]
    _show("a cached kernel is ready", times, "ms", 2.0)


def _timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def cold_compilation(repetitions: int, name: str) -> None:
    """Our cold build against the bare compiler with the same flags on the same file."""
    declared = source(name)
    compiler, _ = kernels.compiler()
    ratios = []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            bare = [compiler, *kernels.BASE_FLAGS, *declared.flags, "-fPIC"]
            bare.append(f"-I{declared.path.parent}")
            if declared.copied:  # two files, which only our own build can link
                bare += ["-c", str(declared.path), "-x", "c", str(declared.copied)]
            else:
                bare += ["-shared", str(declared.path), "-o", "bare.so", *declared.link]
            bare_s = _timed(functools.partial(subprocess.run, bare, check=True, cwd=folder))
            os.environ["PERFLIB_CACHE"] = f"{folder}/cache"
            kernels.compiler()
            ours_s = _timed(lambda: build(name))
            del os.environ["PERFLIB_CACHE"]
            ratios.append(ours_s / bare_s)
    _show(f"cold compilation of {name} over the bare compiler", ratios, "times", 1.2)


def many_cases(repetitions: int) -> None:
    """The kernel with 32,768 cases, cold and warm; cold with a Python's start."""
    cold, memory = [], []
    for _ in range(max(3, repetitions // 3)):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PERFLIB_CACHE"] = f"{folder}/cache"
            code = "from perflib.kernels import load; load('code_segment')"
            begin = time.perf_counter()
            process = subprocess.Popen([sys.executable, "-c", code])
            _, _, used = os.wait4(process.pid, 0)
            cold.append(time.perf_counter() - begin)
            memory.append(used.ru_maxrss / 1024)  # of the largest: Python, compiler or assembler
            del os.environ["PERFLIB_CACHE"]
    _show("32,768 cases are ready, cold", cold, "s", 10.0)
    _show("the largest process of that", memory, "MiB", 381.0)
    build("code_segment")
    argv = [sys.executable, "-c", _READY.format(other="cpuid", name="code_segment")]
    warm = [1e3 * float(subprocess.check_output(argv)) for _ in range(repetitions)]
    _show("32,768 cases are ready, warm", warm, "ms", 10.0)


def worker_start(repetitions: int) -> None:
    """From nothing to a worker that answered its first call, conditions read back."""
    built = build("clock_gaps")
    times = []
    for _ in range(repetitions):
        with Worker(built, Conditions(cpu=min(os.sched_getaffinity(0)))) as worker:
            times.append(1e3 * _timed(worker.start))
    _show("a worker starts", times, "ms", 150.0)


def bookkeeping(repetitions: int) -> None:
    """Time that a run of 50 ms trials spends outside its trials, and outside their slices."""
    experiment = get("kv_per_core")
    shares, probes = [], []
    for _ in range(repetitions):
        params = experiment.Params.make({"budget_s": 4.0, "trial_ms": 50.0})
        run = experiment.measure(params, stop=threading.Event())
        samples = run.samples
        samples = samples.assign(end_ns=samples["start_ns"] + samples["time_ns"])
        trials = samples.groupby(["round", "cpu"]).agg(
            begin=("start_ns", "min"), end=("end_ns", "max")
        )
        trials = trials.sort_values("begin")
        between = trials["begin"].to_numpy()[1:] - trials["end"].to_numpy()[:-1]
        shares.append(100 * float(statistics.median(between)) / 50e6)
        next_ns = samples["start_ns"].shift(-1) - samples["end_ns"]
        within = next_ns[samples["event"].eq(samples["event"].shift(-1)) & next_ns.gt(0)]
        probes.append(100 * within.median() / (within.median() + samples["cpu_time_ns"].median()))
    _show("design and bookkeeping add to trials of 50 ms", shares, "percent", 2.0)
    _show("probes and accounts of the measuring time", probes, "percent", 3.0)


def main() -> None:
    """Run them all, with runs and caches of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["PERFLIB_HOME"] = str(Path(home))
        cached_kernel(asked.repetitions)
        cold_compilation(asked.repetitions, "clock_gaps")
        cold_compilation(max(3, asked.repetitions // 3), "kv")
        many_cases(asked.repetitions)
        worker_start(asked.repetitions)
        bookkeeping(max(3, asked.repetitions // 3))


if __name__ == "__main__":
    main()
