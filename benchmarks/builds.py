"""How often two builds are judged wrongly: alignment alone, and one function that costs more.

    python benchmarks/builds.py [PAIRS] [BUDGET_S] [BESIDE_S]

Real programs, recorded function by function. The builds of an equal pair have the same source and
differ in the alignment of functions, loops and jumps; of an unequal pair one function of about a
fifth of the time does a tenth more, in the program or (every second) moved to a library as well.
It takes cc and perf. With BESIDE_S hyperfine, pyperf and perf diff judge the same pairs, each for
about so long, in the way that their users read them: hyperfine's ratio is off 1 by more than its
error, pyperf says "significant", perf diff's first function differs by a point or more.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from perflib.experiments import get
from perflib.model.finding import Finding

_FUNCTIONS = """
#include <stdint.h>
#include <stdio.h>
#define OWN __attribute__((noinline))
#ifndef PART
#define PART 3
#endif
#if PART & 1
OWN uint64_t track(uint64_t x, int n) {
  for (int i = 0; i < n; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; }
  return x;
}
#endif
#if PART & 2
uint64_t track(uint64_t x, int n);
OWN uint64_t mix(uint64_t x, int n) {
  for (int i = 0; i < n; i++) x = x * 6364136223846793005ULL + (x >> 29);
  return x;
}
OWN double field(double b, int n) {
  for (int i = 0; i < n; i++) b = b * 0.999 + 1.0 / (1.0 + b);
  return b;
}
OWN uint64_t hash(uint64_t x, int n) {
  for (int i = 0; i < n; i++) x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ULL;
  return x;
}
int main(void) {
  uint64_t x = 1, y = 3, h = 7;
  double b = 1;
  for (int e = 0; e < 6000; e++) {
    x = mix(x, 20000), y = track(y, TRACK), b = field(b, 6000), h = hash(h, 12000);
  }
  printf("%d %d %d\\n", x == y, b > 2, h == 3);
  return 0;
}
#endif
"""
_COST = 13_000  # of track: about a fifth of the time
_ALIGNED = ("functions", "loops", "jumps")


def _build(folder: Path, cost: int, flags: list[str], *, moved: bool = False) -> Path:
    folder.mkdir(parents=True)
    (folder / "job.c").write_text(_FUNCTIONS)
    line = ["cc", "-O2", "-g", f"-DTRACK={cost}", *flags, "job.c"]
    if moved:
        shared = ["-DPART=1", "-shared", "-fPIC", "-o", "libtrack.so"]
        subprocess.run([*line, *shared], cwd=folder, check=True)
        line += ["-DPART=2", "-L.", "-ltrack", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*line, "-o", "job"], cwd=folder, check=True)
    return folder / "job"


def _judged(sides: list[Path], budget_s: float) -> dict[str, list[Finding]]:
    experiment = get("layout")
    before, after = sides
    given = {
        "job": "command", "job_command": str(before), "other_command": str(after),
        "functions": True, "fail_above_percent": 1.0, "budget_s": budget_s, "simulated_s": 0.0,
    }  # fmt: skip
    run = experiment.measure(experiment.params(given))
    found: dict[str, list[Finding]] = {}
    for one in experiment.analyse(run):
        found.setdefault(one.of.name, []).append(one)
    return found


def _said(folder: Path, *argv: str | Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def _hyperfine(folder: Path, sides: list[Path], budget_s: float, job_s: float) -> str:
    runs = str(max(3, round(budget_s / 2 / job_s)))
    _said(folder, "hyperfine", "-N", "-w", "1", "-r", runs, "--export-json", "h.json", *sides)
    before, after = json.loads((folder / "h.json").read_text())["results"]
    ratio = after["mean"] / before["mean"]
    error = ratio * sum((one["stddev"] / one["mean"]) ** 2 for one in (before, after)) ** 0.5
    return f"{'different' if abs(ratio - 1) > error else 'equal'} ({ratio:.3f} ± {error:.3f})"


def _pyperf(folder: Path, sides: list[Path], budget_s: float, job_s: float) -> str:
    processes = str(max(3, round(budget_s / 2 / job_s / 2)))  # each starts the job two times
    for side, path in zip("ab", sides, strict=True):
        (folder / f"{side}.json").unlink(missing_ok=True)  # it does not overwrite
        once = ["-p", processes, "-n", "1", "-w", "1", "-l", "1", "--name", "job"]
        _said(folder, "pyperf", "command", *once, "-o", f"{side}.json", path)
    said = _said(folder, "pyperf", "compare_to", "a.json", "b.json")
    return "equal" if "not significant" in said else f"different ({said.split(': ')[-1].strip()})"


def _perf_diff(folder: Path, sides: list[Path], budget_s: float, job_s: float) -> str:
    runs = " ".join(str(one) for one in range(max(1, round(budget_s / 2 / job_s))))
    for side, path in zip("ab", sides, strict=True):
        loop = f"for one in {runs}; do {path} > /dev/null; done"
        _said(folder, "perf", "record", "-q", "-F", "4000", "-o", f"{side}.data", "sh", "-c", loop)
    lines = _said(folder, "perf", "diff", "--percentage", "absolute", "a.data", "b.data")
    rows = [line.split() for line in lines.splitlines() if "%" in line and line[:1] != "#"]
    deltas = {
        row[-1]: float(word.rstrip("%"))
        for row in rows
        for word in row[:2]
        if word[0] in "+-" and word.endswith("%")
    }
    first = max(deltas, key=lambda name: abs(deltas[name]), default="")
    change = deltas.get(first, 0.0)
    return f"{first if abs(change) >= 1 else 'equal'} ({change:+.2f})"


_BESIDE = {"hyperfine": _hyperfine, "pyperf": _pyperf, "perf": _perf_diff}


def _others(folder: Path, sides: list[Path], budget_s: float) -> str:
    """What other tools that are installed say of a pair."""
    begin = time.monotonic()
    _said(folder, sides[0])
    job_s = time.monotonic() - begin
    return "; ".join(
        f"{name}: {judged(folder, sides, budget_s, job_s)}"
        for name, judged in _BESIDE.items()
        if budget_s > 0 and shutil.which(name)
    )


def main(pairs: int, budget_s: float, beside_s: float) -> None:
    """Print a line for each pair, and the counts."""
    counts = dict.fromkeys(("fired", "passed", "equal", "first", "unequal", "reported", "moved"), 0)
    for number in range(pairs):
        generator = random.Random(number)
        with tempfile.TemporaryDirectory() as folder:
            sides = []
            for side in "ab":
                flags = [f"-falign-{one}={2 ** generator.randint(0, 6)}" for one in _ALIGNED]
                sides.append(_build(Path(folder, "equal", side), _COST, flags))
            found = _judged(sides, budget_s)
            (gate,) = found["gate"]
            named = [one.about["function"] for one in found.get("one_function", ())]
            counts["equal"] += 1
            counts["fired"] += gate.verdict == "supported"
            counts["passed"] += gate.verdict == "refuted"
            print(f"equal {number}: {gate.verdict}, {gate.effect:+.2f} %, {named}", flush=True)
            print(f"  {_others(Path(folder), sides, beside_s)}", flush=True)

            begin, moved = time.monotonic(), bool(number % 2)
            sides = [
                _build(Path(folder, "unequal", "a"), _COST, []),
                _build(Path(folder, "unequal", "b"), _COST * 11 // 10, [], moved=moved),
            ]
            found = _judged(sides, budget_s)
            named = [one.about["function"] for one in found.get("one_function", ())]
            changes = [one.plain for one in found.get("changed_code", ())]
            counts["unequal"] += 1
            counts["first"] += named[:1] == ["track"]
            counts["moved"] += moved
            counts["reported"] += moved and any(
                "track moved from the program" in one for one in changes
            )
            lasted_s = time.monotonic() - begin
            print(f"unequal {number}: {named}, {changes}, {lasted_s:.0f} s", flush=True)
            print(f"  {_others(Path(folder), sides, beside_s)}", flush=True)
    print(
        f"alignment alone: gate at 1 % fails {counts['fired']} of {counts['equal']}, passes "
        f"{counts['passed']}; a tenth more of a fifth: named first in {counts['first']} of "
        f"{counts['unequal']}; moved to a library: reported in {counts['reported']} of "
        f"{counts['moved']}"
    )


if __name__ == "__main__":
    _pairs, _budget_s, _beside_s = [*sys.argv[1:], *("20", "120", "0")[len(sys.argv) - 1 :]]
    main(int(_pairs), float(_budget_s), float(_beside_s))
