"""A second opinion of the same cores: OpenDCDiag, where its command is installed.

Its log is read line by line: what is not known is passed over, and a log that ends in the middle
has what stands before. (https://github.com/opendcdiag/opendcdiag, ``framework/logging.cpp``: a
``test`` has a ``result`` and, where it failed, ``threads`` with an ``id`` and a ``state``.)
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perflib.experiments.correctness.claims import OPINION
from perflib.machine.cpulist import format_cpus
from perflib.measure.job import run_alone
from perflib.model.errors import MeasurementError
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval

COMMAND = "opendcdiag"
_GRACE_S = 120.0  # its last test may take so long
_MOST_BYTES = 64 << 20  # of its log
_WIDE = 60  # characters of a name
_AGAIN = 2  # failures of a core, of which one alone decides nothing
_LINE = re.compile(r"[\s-]*(version|test|result|thread|id|state):\s*(.*?)\s*$")
_CPU = re.compile(r"\blogical:\s*(\d{1,5})\b")


def ask(cores: Sequence[int], time_s: float) -> tuple[dict[str, Any], str]:
    """Let it test these CPUs; what it says (empty: nothing), and what was in its way.

    It tests a failure again by itself. It ends, with all of its processes, when this call does.
    """
    path = shutil.which(COMMAND)
    if path is None:
        return {}, f"no second opinion: {COMMAND} is not on PATH"
    with tempfile.TemporaryDirectory(prefix="perflib-") as folder:
        log = Path(folder) / "log.yaml"
        argv = [path, "-Y", "-o", str(log), "-T", f"{time_s * 1e3:.0f}", "--strict-runtime"]
        argv.append(f"--cpuset={','.join(map(str, cores))}")
        try:
            ran = run_alone(argv, timeout_s=time_s + _GRACE_S)
            with log.open(encoding="utf-8", errors="replace") as file:
                found = parsed(file.read(_MOST_BYTES))
        except (MeasurementError, OSError) as error:
            return {}, f"no second opinion: {COMMAND} failed: {error}"
    if not found["results"]:
        last = (ran.output.strip().splitlines() or ["nothing"])[-1][:_WIDE]
        return {}, f"no second opinion: {COMMAND} tested nothing; its last line: {last}"
    return {**found, "cores": list(cores), "seconds": ran.wall_s, "status": ran.returncode}, ""


def parsed(text: str) -> dict[str, Any]:
    """Its version, how many tests had which result, and how often which CPU failed in which."""
    version, test, result, cpu = "", "", "", -1
    results, failed = Counter[str](), Counter[tuple[str, int]]()
    for match in filter(None, map(_LINE.match, text.splitlines())):
        name, value = match[1], match[2].strip("'\"")[:_WIDE]
        if name == "version":
            version = version or value
        elif name == "test":
            test, result, cpu = value, "", -1
        elif name == "result" and test and not result:
            result = value
            results[result] += 1
        elif name == "thread":
            cpu = -1
        elif name == "id" and (number := _CPU.search(match[2])):
            cpu = int(number[1])
        elif name == "state" and value == "failed" and result == "fail":
            failed[test, cpu] += 1
    listed = [{"test": test, "cpu": cpu, "times": n} for (test, cpu), n in sorted(failed.items())]
    return {"version": version, "results": dict(results), "failed": listed}


def findings(said: Mapping[str, Any]) -> list[Finding]:
    """What it found; nothing where it was not asked."""
    results: Mapping[str, int] = said.get("results", {})
    if not results:
        return []
    times = Counter[str]()
    for one in said.get("failed", []):
        times[f"cpu{one['cpu']}" if one["cpu"] >= 0 else "a core"] += one["times"]
    tests = sorted({one["test"] for one in said.get("failed", [])})
    others = [f"{name} {n}" for name, n in results.items() if name not in ("pass", "skip", "fail")]
    remarks = (Reason("unfinished", {"results": others}),) if others else ()
    decision = Decision("refuted", (Reason("passed", {"skipped": results.get("skip", 0)}),))
    if any(number >= _AGAIN for core, number in times.items() if core != "a core"):
        decision = Decision("supported", (Reason("failed"), *remarks))
    elif results.get("fail"):
        decision = Decision("inconclusive", (Reason("failed_once"), *remarks))
    elif others or not results.get("pass"):
        decision = Decision("inconclusive", remarks or (Reason("skipped"),))
    facts = {
        "where": sorted(times) or ["a core"],
        "tests": tests or ["a test"],
        "passed": results.get("pass", 0),
        "version": said.get("version") or "of unknown version",
        "cpus": format_cpus(said.get("cores", [])),
    }
    share = 100 * results.get("fail", 0) / max(1, sum(results.values()))
    evidence = {**said, "p_holm": 0.0 if decision.verdict == "supported" else 1.0}
    return [OPINION.found(decision, Interval(share, share, share), facts=facts, evidence=evidence)]
