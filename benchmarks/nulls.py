"""How often a healthy machine is called unhealthy: every experiment several times, beside a load.

Each round runs the chosen experiments once, as an investigation does, and counts the anomaly claims
that are supported: by each run alone, and after the correction over all claims of the round. The
load is a few processes on each core that work and pause at random: a loop of integers, hashes, and
copies beyond the caches. ``--quiet``: without it. ``--uneven 0.2,2,13``: loops instead, as many as
cores, not pinned, that work as long and pause half as long, one length a round in turn: a trial's,
a batch's and a third of a run's. A run with an alarm is kept next to ``--out``: it becomes a test.

Some claims are no false alarms here. Those of ``MAY_HOLD`` say what the load takes, or what the
processor and the jobs that come with perflib are like; they are counted apart.

    python benchmarks/nulls.py [--runs 7] [--experiments kv_per_core,counters] [--preset quick]
        [--quiet] [--uneven SECONDS,...] [--out nulls.json]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perflib import experiments
from perflib.investigation.correction import corrected
from perflib.model.errors import PerflibError
from perflib.model.finding import Finding
from perflib.store.run_files import save

# By experiment and claim: why it may be true of a healthy machine.
MAY_HOLD = {
    ("machine", "stolen"): "the load takes the time",
    ("kv_per_core", "interference"): "the load takes the time",
    ("threads", "run_queue_delay"): "the load takes the time",
    ("threads", "limiting_lock"): "the job's own lock",
    ("threads", "spinning"): "the job's own waits",
    ("counters", "miscounts"): "events that take turns are scaled",
    ("counters", "misses"): "events that take turns miss short phases",
    ("counters", "costs"): "sampling costs something",
    ("alias_environment", "environment"): "addresses that agree",
    ("alias_environment", "link_order"): "addresses that agree",
    ("alias_environment", "aliased_orders"): "addresses that agree",
    ("alias_offsets", "aliases"): "addresses that agree",
    ("allocators", "cost"): "addresses that agree",
    ("erasure_coding", "aligned"): "addresses that agree",
    ("erasure_coding", "chasing"): "addresses that agree",
}
_EXACT_MODES = ("kernel", "one set")  # of counting: these scale nothing and cost next to nothing
_MEAN_S = 0.2  # of work and of pauses; the seed is the process's place
_COPIED_BYTES = 32 << 20


# --- the load ------------------------------------------------------------------------------------


def _integers() -> None:
    sum(number * number for number in range(2000))


def _hashes() -> None:
    hashlib.blake2b(bytes(1 << 18)).digest()


def _copies() -> None:
    bytearray(bytes(_COPIED_BYTES))


KINDS: dict[str, Callable[[], None]] = {
    "integers": _integers,
    "hashes": _hashes,
    "copies": _copies,
}


def work(kind: str, cpu: int, phase_s: float | None) -> None:
    """Work and pause until killed, or until whoever started it is gone.

    On a core, for random times; with ``phase_s`` on any, for that time and half of it.
    """
    chance = random.Random(f"{kind} {cpu}")
    if phase_s is None:
        os.sched_setaffinity(0, {cpu})
    parent = os.getppid()
    while os.getppid() == parent:
        end = time.monotonic() + (phase_s or chance.expovariate(1 / _MEAN_S))
        while time.monotonic() < end:
            KINDS[kind]()
        time.sleep(phase_s / 2 if phase_s else chance.expovariate(1 / _MEAN_S))


@contextlib.contextmanager
def load(phase_s: float | None = None) -> Iterator[None]:
    """One process of each kind on each core that may be used, or as many loops as cores."""
    started = []
    try:
        for cpu in sorted(os.sched_getaffinity(0)):
            for kind in KINDS if phase_s is None else ["integers"]:
                argv = [sys.executable, __file__, "--work", kind, "--cpu", str(cpu)]
                argv += [] if phase_s is None else ["--uneven", str(phase_s)]
                started.append(subprocess.Popen(argv))
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


# --- runs ----------------------------------------------------------------------------------------


def investigate(
    names: Sequence[str], preset: str, seed: int, kept: Path | None
) -> dict[str, list[Finding]]:
    """What each experiment finds; one that cannot run here is left out, and says why."""
    found = {}
    for name in names:
        experiment = experiments.get(name)
        begin = time.monotonic()
        try:
            params = experiment.params({"seed": seed}, preset)
            run = experiment.measure(params)
            found[name] = experiment.analyse(run)
        except PerflibError as error:
            print(f"  {name}: {error}", flush=True)
            continue
        alarms = "; ".join(f"{one.subject} {one.effect:+.2f}" for one in false_alarms(name, found))
        print(f"  {name}, {time.monotonic() - begin:.0f} s: {alarms or 'no alarm'}", flush=True)
        if alarms and kept:
            save(run, kept / f"{run.id}.parquet")
    return found


def supported(findings: Sequence[Finding]) -> list[Finding]:
    """The anomaly claims that are supported."""
    return [one for one in findings if one.kind == "anomaly" and one.verdict == "supported"]


def may_hold(name: str, one: Finding) -> str | None:
    """Why an anomaly claim may be true of a healthy machine; ``None``: it may not."""
    return None if one.about.get("mode") in _EXACT_MODES else MAY_HOLD.get((name, one.of.name))


def false_alarms(name: str, found: dict[str, list[Finding]]) -> list[Finding]:
    """Those that are not true of a healthy machine."""
    return [one for one in supported(found[name]) if may_hold(name, one) is None]


def record(name: str, own: Finding, together: Finding, round_: int) -> dict[str, Any]:
    """A supported claim, as JSON can hold it."""
    one = together.to_dict()
    return {
        "round": round_,
        "experiment": name,
        "may_hold": may_hold(name, own),
        "survives": together.verdict == "supported",
        **{key: one[key] for key in ("subject", "claim", "effect", "low", "high", "unit")},
        "p": one["evidence"].get("p"),
        "p_investigation": one["evidence"].get("p_investigation"),
    }


def table(records: Sequence[dict[str, Any]], runs: Counter[str]) -> Iterator[str]:
    """Lines: for each experiment in how many runs something was claimed, and what."""
    yield f"{'experiment':20s} {'runs':>4s} {'alarm':>6s} {'left':>5s} {'may hold':>9s}  claims"
    for name, count in runs.items():
        mine = [one for one in records if one["experiment"] == name]
        false = [one for one in mine if one["may_hold"] is None]
        in_runs = len({one["round"] for one in false})
        left = len({one["round"] for one in false if one["survives"]})
        others = len({one["round"] for one in mine if one["may_hold"]})
        named = Counter(one["subject"] for one in false)
        claims = ", ".join(f"{subject} x{times}" for subject, times in named.most_common(4))
        yield f"{name:20s} {count:4d} {in_runs:6d} {left:5d} {others:9d}  {claims}"


def main() -> None:
    """Run the rounds, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--experiments", default=",".join(experiments.NAMES))
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--uneven", default="", metavar="SECONDS,...", help="lengths of work")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", choices=list(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    phases: list[float | None] = [float(one) for one in given.uneven.split(",") if one]
    phases = phases or [None]
    if given.work:
        work(given.work, given.cpu, phases[0])
        return
    names = [experiments.get(name).name for name in given.experiments.split(",")]
    records: list[dict[str, Any]] = []
    runs = Counter(dict.fromkeys(names, 0))
    alarms, left = 0, 0
    for round_ in range(given.runs):
        print(f"round {round_ + 1} of {given.runs}", flush=True)
        phase_s = phases[round_ % len(phases)]
        with contextlib.nullcontext() if given.quiet else load(phase_s):
            kept = given.out.parent if given.out else None
            found = investigate(names, given.preset, given.seed + round_, kept)
        runs.update(found.keys())
        together = corrected(list(found.values()))
        false = [false_alarms(name, found) for name in found]
        alarms += any(false)
        mine = [
            record(name, own, after, round_)
            for (name, findings), afterwards in zip(found.items(), together, strict=True)
            for own, after in zip(findings, afterwards, strict=True)
            if supported([own])
        ]
        left += any(one["survives"] and one["may_hold"] is None for one in mine)
        records += mine
    print("\n".join(table(records, runs)))
    print(f"of {given.runs} investigations {alarms} had a false alarm of a run by itself, {left} "
          "after the correction over all their claims")  # fmt: skip
    if given.out:
        result = {
            "quiet": given.quiet,
            "uneven_s": phases,
            "preset": given.preset,
            "runs": runs,
            "claims": records,
        }
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
