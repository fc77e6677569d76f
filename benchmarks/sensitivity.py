"""Does KV per core name a core that another process takes a slice of, and only then?

A process takes a share of one core in slices of a millisecond, at a real-time priority that the
measured process does not push aside. The true slowdown is 1 / (1 - share), with the share that the
disturber's own CPU clock shows. Null runs have no disturber.

    python benchmarks/sensitivity.py [--share 5] [--null 20] [--runs 3] [--budget 60]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from perflib.experiments import get
from perflib.machine.hardware.topology import topology
from perflib.model.finding import Finding

_SLICE_S = 0.001


def interfere(cpu: int, share: float) -> None:
    """Take a share of a core in slices, until killed; print the share on SIGTERM."""
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


def measure(budget_s: float, seed: int) -> list[Finding]:
    """One run as a user makes it."""
    experiment = get("kv_per_core")
    run = experiment.measure(experiment.Params.make({"budget_s": budget_s, "seed": seed}))
    return [finding for finding in experiment.analyse(run) if " " not in finding.subject]


def disturbed_run(cpu: int, share: float, budget_s: float, seed: int) -> bool:
    """Measure with a disturber on a core; print what was found and what is true."""
    argv = [sys.executable, __file__, "--interfere", str(cpu), "--share", str(100 * share)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as disturber:
        assert disturber.stdout is not None
        disturber.stdout.readline()
        os.set_blocking(disturber.stdout.fileno(), False)
        taken = b""
        findings = measure(budget_s, seed)
        while chunk := disturber.stdout.read():
            taken = chunk
        disturber.kill()
    true = 1 / (1 - float(taken.split()[-2])) - 1
    mine = next(finding for finding in findings if finding.subject == f"cpu{cpu}")
    named = [finding.subject for finding in findings if finding.verdict == "supported"]
    covers = mine.low <= 100 * true <= mine.high
    print(
        f"cpu{cpu}, true {100 * true:.2f} %: {mine.effect:+.2f} % [{mine.low:+.2f}, "
        f"{mine.high:+.2f}], half-width {(mine.high - mine.low) / 2:.2f}, named {named}, "
        f"{'covers' if covers else 'MISSES'}; {mine.reason}",
        flush=True,
    )
    return covers and named == [f"cpu{cpu}"] and (mine.high - mine.low) / 2 <= 1.5


def main() -> None:
    """Run what was given for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=5.0, help="percent of the core")
    parser.add_argument("--runs", type=int, default=3, help="runs with a disturber, cores in turn")
    parser.add_argument("--null", type=int, default=0, help="runs without")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds a run")
    parser.add_argument("--interfere", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.interfere is not None:
        interfere(given.interfere, given.share / 100)
    cores = topology().one_per_core()
    good = [
        disturbed_run(cores[number % len(cores)], given.share / 100, given.budget, number)
        for number in range(given.runs)
    ]
    if good:
        print(f"{sum(good)} of {len(good)} runs name the core, cover the truth, within 1.5 points")
    named = 0
    for number in range(given.null):
        findings = measure(given.budget, number)
        found = [finding.subject for finding in findings if finding.verdict == "supported"]
        named += len(found)
        print("null: " + "; ".join(str(finding) for finding in findings), flush=True)
    if given.null:
        print(f"{named} cores named in {given.null} null runs")


if __name__ == "__main__":
    main()
