"""Faults at random moments: is anything lost, does anything stay behind?

Each case runs one experiment for a few seconds, as a user does, and does one thing to it at a
moment drawn from a seed: processes are killed, disks fill, clocks jump, compilers lie (see
``chaos_faults.py``). When the command has ended, the fault is undone and the run resumed. Then:

- every sample that the journal held at that moment is in the saved run, bit by bit;
- the run has the columns and types of an undisturbed one, and whole rounds;
- every command ended in time, with a sentence where it failed, never with a traceback;
- no process, shared memory, temporary or half-written file is left, and no setting changed.

As root each case has a mount namespace of its own: its disks and a copy of the machine's switch of
huge pages are nobody else's. Otherwise faults that need one are left out, and say so.

    python -m benchmarks.chaos [--faults 500] [--seed 1] [--jobs 2] [--only FAULT]
        [--experiment NAME] [--case NUMBER] [--out chaos.json] [--folder /var/tmp/chaos]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos_faults import FAULTS, Fault, moment
from benchmarks.chaos_run import Subject, adopt_orphans, described, lost, unlike
from perflib import experiments
from perflib.store import run_files

_CASE_LIMIT_S = 900.0
_SHIM = Path(__file__).with_name("chaos_shim.c")
_TOP = Path(__file__).parents[1]


@dataclass(frozen=True)
class Place:
    """Where cases run: below a folder, with a cache that they share, in namespaces or not."""

    folder: Path
    cache: Path
    private: bool


@dataclass
class Outcome:
    """What came of one case."""

    number: int
    fault: str
    experiment: str
    moment: tuple[str, float] = ("", 0.0)
    struck: bool = True
    held: int = 0
    lost: int = 0
    left: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def survived(self) -> bool:
        """Whether nothing was lost or left, and every command ended as it should."""
        return not (self.lost or self.left or self.problems)


# --- the cases -----------------------------------------------------------------------------------


def pairs(seed: int) -> list[tuple[str, str]]:
    """Each fault on each experiment that it concerns, in random order."""
    every = [
        (fault.name, name)
        for fault in FAULTS.values()
        for name in fault.experiments or experiments.NAMES
    ]
    random.Random(seed).shuffle(every)
    return every


def can_be_private() -> bool:
    """Whether cases can have mount namespaces of their own."""
    tool = shutil.which("unshare")
    if os.geteuid() != 0 or tool is None:
        return False
    tried = subprocess.run([tool, "--mount", "true"], check=False, capture_output=True)
    return tried.returncode == 0


def shim(folder: Path) -> Path:
    """The compiled shim."""
    library = folder / "chaos_shim.so"
    if not library.exists():
        temporary = library.with_suffix(f".{os.getpid()}")
        argv = ["gcc", "-O2", "-shared", "-fPIC", str(_SHIM), "-o", str(temporary), "-ldl"]
        subprocess.run(argv, check=True)
        temporary.replace(library)
    return library


def _compiled(subject: Subject) -> list[str]:
    return sorted(path.name for path in subject.cache.iterdir())


def reference(place: Place, name: str) -> dict[str, Any]:
    """An undisturbed run of an experiment, which is measured once."""
    file = place.folder / f"{name}.json"
    if not file.exists():
        subject = Subject(
            place.folder / f"reference-{name}-{os.getpid()}",
            place.cache,
            name,
            random.Random(0),
            private=place.private,
        )
        try:
            compiled = None
            while compiled != (compiled := _compiled(subject)):  # until nothing was to be compiled
                begin = time.monotonic()
                subject.start()
                subject.wait_until(lambda: bool(subject.saved()))
                assert subject.process is not None
                if problem := subject.settle(subject.process, subject.log, [0]):
                    msg = f"{name}, undisturbed: {problem}"
                    raise RuntimeError(msg)
                wall_s = time.monotonic() - begin
            if left := subject.left(unfinished=False):
                msg = f"{name}, undisturbed, leaves: {left}"
                raise RuntimeError(msg)
            path = subject.saved()[-1]
            trials = run_files.load(path).provenance["trials"]
            record = described(path, wall_s, trials)
        finally:
            subject.clear()
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(record))
        temporary.replace(file)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def case(number: int, seed: int, place: Place) -> Outcome:
    """Run one case, in this process and its children."""
    every = pairs(seed)
    name, experiment = every[number % len(every)]
    fault = FAULTS[name]
    chance = random.Random(f"{seed}/{number}")
    outcome = Outcome(number, name, experiment, moment(chance, fault))
    if fault.private and not place.private:
        outcome.struck = False
        return outcome
    expected = reference(place, experiment)
    begin = time.monotonic()
    folder = place.folder / f"case-{seed}-{number}"
    cache = None if fault.cold else place.cache
    subject = Subject(folder, cache, experiment, chance, private=place.private)
    subject.limit_s += 15 * expected["wall_s"]
    try:
        _fault_and_after(subject, fault, expected, outcome, place.folder)
    finally:
        subject.clear()
    outcome.wall_s = round(time.monotonic() - begin, 1)
    return outcome


def _fault_and_after(
    subject: Subject, fault: Fault, expected: dict[str, Any], outcome: Outcome, folder: Path
) -> None:
    if fault.shim:
        subject.preload(shim(folder))
    fault.before(subject)
    begin = time.monotonic()
    subject.start()
    assert subject.process is not None
    kind, share = outcome.moment
    if kind == "time":
        subject.wait_until(lambda: time.monotonic() - begin >= share * expected["wall_s"])
    elif kind == "trials":
        wanted = 1 + round(share * (expected["trials"] - 2))
        subject.wait_until(lambda: len(subject.held().trials) >= wanted)
    elif kind == "saving":
        subject.wait_until(
            lambda: any(subject.runs.glob("*.parquet*")) or any(subject.runs.glob(".*"))
        )
    held = subject.held()
    outcome.struck = not subject.over and fault.strike(subject) is not False
    outcome.problems += _named("", subject.settle(subject.process, subject.log, fault.ends))
    fault.mend(subject)
    subject.launcher = subject.launcher if subject.undo else []
    _resume(subject, fault, outcome)
    if fault.once_more and not subject.saved():
        subject.log = subject.folder / "again"
        subject.start()
        outcome.problems += _named("again: ", subject.settle(subject.process, subject.log, [0]))
    elif any((subject.home / "restore").glob("*.journal")):  # the next measurement restores
        after = subject.folder / "after"
        process = subject.popen(after, "run", "machine", "-p", "budget_s=0.5")
        outcome.problems += _named("after: ", subject.settle(process, after, [0]))
    saved = [path for path in subject.saved() if path.stem == held.run or not held.run]
    run = run_files.load(saved[0]) if saved else None
    outcome.held = len(held.samples)
    outcome.lost = lost(held, run.samples if run else None)
    if saved:
        outcome.problems += unlike(expected, saved[0], may_lack=fault.may_lack)
    elif held.trials:
        outcome.problems.append("no run is saved")
    outcome.left = subject.left(unfinished=False)


def _named(what: str, problem: str) -> list[str]:
    return [what + problem] if problem else []


def _resume(subject: Subject, fault: Fault, outcome: Outcome) -> None:
    """Resume what is unfinished; of several that try at once, one goes on and the others say so."""
    for journal in subject.journals():
        logs = [subject.folder / f"resumed-{number}" for number in range(fault.resumes)]
        started = [subject.popen(log, "run", "--resume", journal.stem, "--json") for log in logs]
        allowed = [0] if fault.resumes == 1 else [0, 2]
        for process, log in zip(started, logs, strict=True):
            outcome.problems += _named("resumed: ", subject.settle(process, log, allowed))
        if [process.returncode for process in started].count(0) != 1:
            codes = [process.returncode for process in started]
            outcome.problems.append(f"resumed: exit statuses {codes}, one 0 was expected")


# --- many of them --------------------------------------------------------------------------------


def apart(number: int, seed: int, place: Place) -> Outcome:
    """Run one case in a process, and where it can be in a mount namespace, of its own."""
    argv = [sys.executable, "-m", "benchmarks.chaos", "--case", str(number), "--seed", str(seed),
            "--folder", str(place.folder), "--cache", str(place.cache), "--json"]  # fmt: skip
    if place.private:
        argv = ["unshare", "--mount", "--propagation", "private", *argv, "--private"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=_CASE_LIMIT_S, cwd=_TOP
        )
        record = json.loads(done.stdout.splitlines()[-1])
        return Outcome(**{**record, "moment": tuple(record["moment"])})
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        every = pairs(seed)
        said = done.stderr.strip()[-600:] if isinstance(error, (IndexError, ValueError)) else ""
        return Outcome(
            number,
            *every[number % len(every)],
            problems=[f"the case itself failed: {error} {said}"],
        )


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Markdown lines: for each fault how many were tried, and what came of them."""
    yield "| fault | tried | survived | samples held | lost | left |"
    yield "| -- | -- | -- | -- | -- | -- |"
    struck = [one for one in outcomes if one.struck or not one.survived]
    for name in [*FAULTS, ""]:
        mine = [one for one in struck if name in ("", one.fault)]
        if name and not mine:
            continue
        whole = sum(one.survived for one in mine)
        sums = f"{sum(one.held for one in mine)} | {sum(one.lost for one in mine)}"
        left = sum(len(one.left) for one in mine)
        yield f"| {name or '**all**'} | {len(mine)} | {whole} | {sums} | {left} |"


def chosen(given: argparse.Namespace) -> Iterator[int]:
    """The numbers of the cases that were asked for, without end."""
    every = pairs(given.seed)
    possible = can_be_private()
    number = given.first
    wanted = [
        (given.only in (None, fault) and given.experiment in (None, name))
        and (possible or not FAULTS[fault].private)
        for fault, name in every
    ]
    if not any(wanted):
        sys.exit("no case is of that fault and that experiment, or it takes root")
    while True:
        if wanted[number % len(every)]:
            yield number
        number += 1


def main() -> None:
    """Run the cases, print what failed and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=20, help="how many are to strike")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="cases at the same time")
    parser.add_argument("--only", choices=list(FAULTS), help="this fault alone")
    parser.add_argument("--experiment", choices=experiments.NAMES)
    parser.add_argument("--case", type=int, help="this one alone, by its number")
    parser.add_argument("--first", type=int, default=0, help="the number to begin with")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/perflib-chaos"))
    parser.add_argument("--cache", type=Path, help="of compiled kernels; one in the folder")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--private", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    cache = given.cache or given.folder / "cache"
    if given.json:
        adopt_orphans()
        place = Place(given.folder, cache, given.private)
        print(json.dumps(asdict(case(given.case, given.seed, place))))
        return
    place = Place(given.folder, cache, can_be_private())
    if given.case is not None:
        print(json.dumps(asdict(apart(given.case, given.seed, place)), indent=1))
        return
    numbers = chosen(given)
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        while (missing := given.faults - sum(one.struck for one in outcomes)) > 0:
            batch = [next(numbers) for _ in range(missing)]
            for one in pool.map(lambda number: apart(number, given.seed, place), batch):
                outcomes.append(one)
                _say(one, given.seed)
                if given.out:
                    given.out.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    print("\n".join(table(outcomes)))


def _say(one: Outcome, seed: int) -> None:
    came = "ok" if one.survived else "FAILED"
    kind, share = one.moment
    where = f"{one.fault}, {one.experiment}, {kind} {share:.2f}, {one.held} samples held"
    print(
        f"{one.number:5d} {came if one.struck else 'came too late'}: {where}, {one.wall_s} s",
        flush=True,
    )
    if not one.survived:
        for problem in [*one.problems, *(f"left: {left}" for left in one.left)]:
            print(f"      {problem}")
        if one.lost:
            print(f"      {one.lost} samples are lost")
        print(f"      python -m benchmarks.chaos --seed {seed} --case {one.number}", flush=True)


if __name__ == "__main__":
    main()
