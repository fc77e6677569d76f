"""What KV per core can see on this machine, quiet or busy: each scenario several times.

``null``: nothing is wrong with either core. ``costlier``: one core runs a build whose Runge-Kutta
step has a few multiplications more; what that truly costs is measured first, both builds by turns
on one core. ``thief``: a process takes a share of one core in slices of a millisecond under
SCHED_FIFO; the true share is its own CPU clock's. ``quota``: a control group allows the whole run
90 % of a core. ``--load``: this project's tests run on both cores meanwhile.

    python benchmarks/sensitivity.py null costlier thief quota [--runs 10] [--share 7] [--load]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

import perflib as pl
from perflib.experiments import get
from perflib.experiments.kv_per_core import KvParams
from perflib.experiments.kv_per_core import measure as kv_measure
from perflib.experiments.kv_per_core.table import kv_table
from perflib.kernels import Build, build
from perflib.machine.hardware.topology import topology
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker
from perflib.model.finding import Finding
from perflib.stats.interval import Interval

_SLICE_S = 0.001
_ROOT = Path(__file__).parent.parent


# --- what is done to the machine -----------------------------------------------------------------


def interfere(cpu: int, share: float) -> None:
    """Take a share of a core in slices until killed; print the share so far after each."""
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    print("ready", flush=True)
    begin, begin_cpu = time.monotonic(), time.process_time()
    sys.stdin.close()
    while True:
        end = time.monotonic() + _SLICE_S
        while time.monotonic() < end:
            pass
        taken = (time.process_time() - begin_cpu) / (time.monotonic() - begin)
        print(f"{taken:.6f}", flush=True)
        time.sleep(_SLICE_S * (1 / share - 1))


@contextlib.contextmanager
def thief(cpu: int, share: float) -> Iterator[list[float]]:
    """The process that takes the share; what it truly took stands in the list at the end."""
    argv = [sys.executable, __file__, "--interfere", str(cpu), "--share", str(100 * share)]
    true: list[float] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as disturber:
        assert disturber.stdout is not None
        disturber.stdout.readline()
        os.set_blocking(disturber.stdout.fileno(), False)
        try:
            yield true
        finally:
            said = b""
            while chunk := disturber.stdout.read():
                said = chunk
            disturber.kill()
        true.append(100 * float(said.split()[-2]))


@contextlib.contextmanager
def load() -> Iterator[None]:
    """This project's own tests of statistics on both cores, over and over."""
    tests = f"{sys.executable} -m pytest -q -n 2 -p no:cacheprovider tests/stats"
    argv = ["sh", "-c", f"while :; do {tests}; done"]
    silent = subprocess.DEVNULL
    process = subprocess.Popen(argv, cwd=_ROOT, stdout=silent, stderr=silent, process_group=0)
    try:
        time.sleep(5)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# --- runs ----------------------------------------------------------------------------------------


def measure(budget_s: float, seed: int) -> dict[str, Finding]:
    """One run as a user makes it."""
    experiment = get("kv_per_core")
    params = experiment.params({"budget_s": budget_s, "seed": seed}, "quick")
    return {finding.subject: finding for finding in experiment.analyse(experiment.measure(params))}


def slow_cores(found: dict[str, Finding]) -> list[str]:
    """The cores that are called slow in themselves."""
    return [name for name, one in found.items() if " " not in name and one.verdict == "supported"]


def shown(one: Finding) -> str:
    """A finding in one line."""
    half = (one.high - one.low) / 2
    return f"{one.subject} {one.effect:+.2f} [{one.low:+.2f}, {one.high:+.2f}] (± {half:.2f})"


class Uneven(kv_measure.KernelTrials):
    """The second core runs another build than the first."""

    other: Build

    def __init__(self, kernel: Build, conditions: Sequence[Conditions], *given: Any) -> None:
        super().__init__(kernel, conditions, *given)
        for which in range(1, len(conditions)):
            self._workers[which] = Worker(self.other, conditions[which])


def costlier() -> tuple[Build, Build]:
    """Two builds that differ by a number in the Runge-Kutta step only."""
    copies = get("kv_per_core").plan(get("kv_per_core").Params.make({}))["copies"]
    return build("kv", variant="framed", copies=copies), build(
        "kv", variant="costlier", copies=copies
    )


def true_cost(budget_s: float) -> Interval:
    """What the costlier build costs in percent: both builds by turns on one core."""
    builds = costlier()
    core = topology().one_per_core()[0]
    experiment = get("kv_per_core")
    params = KvParams.make({"budget_s": budget_s})
    with mock.patch.object(kv_measure, "build", return_value=builds[0]):
        plan = {**experiment.plan(params), **experiment.pilot(params, experiment.plan(params))}
    taken = []
    end = time.monotonic() + budget_s
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(
                kv_measure.KernelTrials(one, [Conditions(cpu=core)], params.seed, params.slice_us)
            )
            for one in builds
        ]
        for trials in both:
            trials.expect(plan, params.first_event)
        for round_ in itertools.count():
            if time.monotonic() > end:
                break
            for which in random.Random(round_).sample((0, 1), 2):
                columns = both[which].take(0, range(params.first_event, params.events))
                taken.append(pd.DataFrame(columns).assign(round=round_, cpu=which))
    return kv_table(pd.concat(taken)).own[1].slowdown


# --- scenarios -----------------------------------------------------------------------------------


def null(given: argparse.Namespace, seed: int) -> bool:
    """Is no core named?"""
    found = measure(given.budget, seed)
    widths = [one for name, one in found.items() if " " not in name]
    print("null:", "; ".join(map(shown, widths)), "named", slow_cores(found), flush=True)
    return not slow_cores(found) and max((one.high - one.low) / 2 for one in widths) <= 0.5


def uneven(given: argparse.Namespace, seed: int) -> bool:
    """Is the core with the costlier build named, and its interval right?"""
    first, Uneven.other = costlier()
    with (
        mock.patch.object(kv_measure, "build", return_value=first),
        mock.patch.object(kv_measure, "KernelTrials", Uneven),
    ):
        found = measure(given.budget, seed)
    cpu = topology().one_per_core()[1]
    one = found[f"cpu{cpu}"]
    covers = one.low <= given.true <= one.high
    print(f"costlier, true {given.true:.2f}: {shown(one)}", "covers" if covers else "MISSES",
          "named", slow_cores(found), flush=True)  # fmt: skip
    return covers and slow_cores(found) == [f"cpu{cpu}"]


def robbed(given: argparse.Namespace, seed: int) -> bool:
    """Is what the thief takes found within half a point, and no core called slow?"""
    cores = topology().one_per_core()
    cpu = cores[seed % len(cores)]
    with thief(cpu, given.share / 100) as true:
        found = measure(given.budget, seed)
    one = found[f"cpu{cpu} taken"]
    print(f"thief, true {true[0]:.2f}: {shown(one)}; {one.reason}; named {slow_cores(found)}",
          flush=True)  # fmt: skip
    return abs(one.effect - true[0]) <= 0.5 and not slow_cores(found)


def limited(given: argparse.Namespace, seed: int) -> bool:
    """Is the quota named?"""
    with pl.cpu_quota(0.9):
        found = measure(given.budget, seed)
    taken = [one for name, one in found.items() if name.endswith(" taken")]
    for one in taken:
        print(f"quota: {shown(one)}; {one.reason}; named {slow_cores(found)}", flush=True)
    codes = [{reason.code for reason in one.reasons} for one in taken]
    return all("quota" in one for one in codes) and not slow_cores(found)


_SCENARIOS = {"null": null, "costlier": uneven, "thief": robbed, "quota": limited}


def main() -> None:
    """Run what was given for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", choices=[*_SCENARIOS, []])
    parser.add_argument("--share", type=float, default=7.0, help="percent of the core, of a thief")
    parser.add_argument("--runs", type=int, default=10, help="of each scenario")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds a run")
    parser.add_argument("--load", action="store_true", help="with tests on both cores")
    parser.add_argument("--interfere", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.interfere is not None:
        interfere(given.interfere, given.share / 100)
    if "costlier" in given.scenarios:
        true = true_cost(2 * given.budget)
        given.true = true.effect
        print(f"the costlier build takes {true.effect:.2f} ± {true.half_width:.2f} % longer")
    with load() if given.load else contextlib.nullcontext():
        for name, _ in itertools.groupby(given.scenarios):
            good = [_SCENARIOS[name](given, seed) for seed in range(given.runs)]
            print(f"{name}: {sum(good)} of {len(good)} as they should be", flush=True)


if __name__ == "__main__":
    main()
