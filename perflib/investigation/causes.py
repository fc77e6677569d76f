"""What may slow a core down: the words of ``cause``, what each means, and what to do about it.

The texts stand in ``causes.toml``. They are templates as those of claims
(``perflib.model.sentences``): they may name what the sign gave, ``{estimate}``, ``{cpu}``,
``{against}``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from perflib.framework.results import is_wrong
from perflib.investigation.evidence import Evidence
from perflib.investigation.start_variation import variation
from perflib.model import sentences
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.stats.interval import NO_INTERVAL, Interval

# Work that is nobody's fault (a disk's interrupts, a daemon) is on some core more than on others:
# from this share of the time on it is a cause. Tasks that are bound to a core count from 1 % on.
_MIN_UNUSUAL_PERCENT = 5.0

Word = Literal[
    "own_speed", "sibling", "other_task", "hypervisor", "quota", "clock", "function", "code_size",
    "itlb", "memory", "softirq", "aliasing", "unexplained", "wrong",
]  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """A cause in words.

    Parameters
    ----------
    means
        What it is, for the documentation.
    plain
        The headline.
    do
        What to do about it, with a command where there is one.
    """

    means: str
    plain: str
    do: str


_PROSE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CAUSES: Mapping[Word, Cause] = {word: Cause(**_PROSE[word]) for word in get_args(Word)}


@dataclass(frozen=True)
class Candidate:
    """A cause that the evidence speaks for.

    Parameters
    ----------
    cost
        What it lengthens the work by, in percent.
    certain
        Its own verdict stands; otherwise it is the best guess.
    values
        What the templates of its cause name.
    findings
        What it rests on, the most important first.
    """

    word: Word
    cpu: int | None
    cost: Interval
    certain: bool
    values: Mapping[str, Any]
    findings: tuple[Finding, ...]

    @property
    def plain(self) -> str:
        """The headline."""
        return sentences.render(sentences.capital(CAUSES[self.word].plain), self.values) + "."

    @property
    def do(self) -> str:
        """What to do about it."""
        return sentences.render(CAUSES[self.word].do, self.values)


def slowness(evidence: Evidence, step: str = "symptom") -> dict[int, Finding]:
    """How slow each core is in itself; a second run replaces a first one that decided nothing."""
    found = {one.about["cpu"]: one for one in evidence.find(step, "slower")}
    if step == "symptom":
        for one in evidence.find("symptom again", "slower"):
            first = found.get(one.about["cpu"])
            if first is None or first.verdict == "inconclusive":
                found[one.about["cpu"]] = one
    return found


def wrong_cores(evidence: Evidence) -> list[Candidate]:
    """Cores that compute wrong, certain ones first: no cause of a slowness, and worse than any."""
    found = [one for taken in evidence.taken for one in evidence.findings(taken.step.name)]
    made = []
    for one in filter(is_wrong, found):
        values = {"result": replace(one, recorded="").plain}
        cpu, certain = one.about.get("cpu"), one.verdict == "supported"
        made.append(Candidate("wrong", cpu, NO_INTERVAL, certain, values, (one,)))
    return sorted(made, key=lambda one: not one.certain)


def candidates(evidence: Evidence) -> list[Candidate]:
    """The causes that the evidence speaks for: certain ones first, then by what they cost.

    If the question names a core, causes on other cores come last.
    """
    asked = evidence.question.core
    found = [
        *_slow_cores(evidence),
        *_clocks(evidence),
        *_quotas(evidence),
        *_softirqs(evidence),
        *_tasks(evidence),
        *_of_the_host(evidence),
        *_addresses(evidence),
    ]

    def place(one: Candidate) -> tuple[bool, bool, float]:
        elsewhere = asked is not None and one.cpu not in (asked, None)
        return elsewhere, not one.certain, -one.cost.effect

    return sorted(found, key=place)


# --- slow in itself, and why ---------------------------------------------------------------------


def _slow_cores(evidence: Evidence) -> list[Candidate]:
    found = []
    for step in ("symptom", "job"):
        for cpu, slower in slowness(evidence, step).items():
            if slower.verdict == "supported":
                found.append(_explained(evidence, cpu, slower, in_job=step == "job"))
    by_cpu = {one.cpu: one for one in found}  # the job's, where both are slow
    return list(by_cpu.values())


def _explained(evidence: Evidence, cpu: int, slower: Finding, *, in_job: bool) -> Candidate:
    """Of a core that is slow in itself: the most specific cause that was established."""
    others = evidence.others(cpu)
    values = {
        "cpu": cpu,
        "against": others[0],
        "others": ",".join(map(str, others)),
        "estimate": sentences.estimate(slower),
        "slowdown": sentences.estimate(slower),
    }
    cost = Interval(slower.effect, slower.low, slower.high)

    def of(word: Word, finding: Finding, **more: Any) -> Candidate:
        named = {**values, "estimate": sentences.estimate(finding), **more}
        return Candidate(word, cpu, cost, True, named, (finding, slower))

    core = f"cpu{cpu}"
    for finding in evidence.find("profile", "footprint", "supported"):
        if finding.about["second"] == core:
            return of("code_size", finding)
    grown = [one for one in evidence.find("profile", "function", "supported") if one.effect > 0]
    for finding in sorted(grown, key=lambda one: -one.evidence["of_event_percent"]):
        if finding.about["second"] == core:
            return of("function", finding, **_function(evidence, finding))
    for step in ("code pages", "calls"):
        for finding in evidence.find(step, EXPLAINS.name, "supported", cause="iTLB misses"):
            if core in str(finding.about["explains"]).split():
                return of("itlb", finding)
    for claim, level in (("slower_first_level", "its first cache"), ("slower_memory", "memory")):
        for finding in evidence.find("memory", claim, "supported", cpu=cpu):
            return of("memory", finding, level=level)
    if in_job and _refuted(slowness(evidence).get(cpu)):
        return Candidate("unexplained", cpu, cost, True, values, (slower,))
    return Candidate("own_speed", cpu, cost, True, values, (slower,))


def _refuted(finding: Finding | None) -> bool:
    return finding is not None and finding.verdict == "refuted"


def _function(evidence: Evidence, finding: Finding) -> dict[str, Any]:
    run = evidence.run("profile")
    return {
        "function": finding.about["function"],
        "estimate": sentences.render("{share:interval %}", {"share": finding.facts["of_event"]}),
        "annotate": f"perflib show {run.id}" if run is not None else "",
    }


# --- what takes a core's time --------------------------------------------------------------------


def _percent(finding: Finding) -> Interval:
    return Interval(finding.effect, finding.low, finding.high)


def _costing(word: Word, cpu: int, finding: Finding, **more: str) -> Candidate:
    """A cause that is certain, and costs what a finding estimates."""
    values = {"cpu": cpu, "estimate": sentences.estimate(finding), **more}
    return Candidate(word, cpu, _percent(finding), True, values, (finding,))


def _taken(evidence: Evidence, claim: str) -> dict[int, Finding]:
    return {one.about["cpu"]: one for one in evidence.find("symptom", claim)}


def _clocks(evidence: Evidence) -> list[Candidate]:
    return [
        _costing("clock", cpu, finding)
        for cpu, finding in _taken(evidence, "clock").items()
        if finding.verdict == "supported"
    ]


def _quotas(evidence: Evidence) -> list[Candidate]:
    """A quota stops all cores alike: one candidate, of the core that lost most."""
    stopped = {
        cpu: one for cpu, one in _taken(evidence, "quota").items() if one.verdict == "supported"
    }
    cpu = max(stopped, key=lambda each: stopped[each].effect, default=None)
    if cpu is None:
        return []
    finding = stopped[cpu]
    command = _command(evidence, "cpu_quota") or "Raise the quota."
    values = {"cpu": cpu, "estimate": sentences.estimate(finding), "quota": command}
    return [Candidate("quota", None, _percent(finding), True, values, (finding,))]


def _command(evidence: Evidence, check: str) -> str:
    return next(
        (one["command"] for one in evidence.fit.get("checks", []) if one["name"] == check), ""
    )


def _apart(finding: Finding, others: list[Finding]) -> bool:
    """More than on every other core, beyond the uncertainty, and by more than is usual."""
    return finding.verdict == "supported" and all(
        finding.low > other.high and finding.effect > other.effect + _MIN_UNUSUAL_PERCENT
        for other in others
    )


def _uneven(evidence: Evidence, claim: str) -> list[tuple[int, Finding]]:
    taken = _taken(evidence, claim)
    return [
        (cpu, finding)
        for cpu, finding in taken.items()
        if len(taken) > 1 and _apart(finding, [one for other, one in taken.items() if other != cpu])
    ]


def _softirqs(evidence: Evidence) -> list[Candidate]:
    return [
        _costing("softirq", cpu, finding, kind=finding.facts["kind"])
        for cpu, finding in _uneven(evidence, "softirq")
    ]


def _tasks(evidence: Evidence) -> list[Candidate]:
    """Tasks bound to one core alone, or a core of which others take clearly more than of the rest.

    Background load that wanders over all cores is no one's symptom: it is reported as interference.
    """
    taken = _taken(evidence, "taken")
    uneven = dict(_uneven(evidence, "taken"))
    softirqs = {one.cpu: one.cost.effect for one in _softirqs(evidence)}
    found = []
    for cpu, finding in taken.items():
        tasks = [
            task
            for task in _bound_here_alone(taken, cpu)
            if not (task["name"].startswith("ksoftirqd/") and cpu in softirqs)
        ]
        percent = sum(task["percent"] for task in tasks)
        rest = finding.effect - softirqs.get(cpu, 0.0)
        least = finding.threshold or 1.0
        if percent >= least and finding.verdict != "refuted":
            cost, estimate = Interval(percent, percent, percent), f"{percent:.1f} %"
            how = "bound to it: "
        elif cpu in uneven and rest >= least:
            cost, tasks = _percent(finding), list(finding.evidence.get("tasks", []))
            estimate, how = sentences.estimate(finding), "most of it by "
        else:
            continue
        named = ", ".join(f"{task['name']} (process {task['pid']})" for task in tasks[:2])
        others = ",".join(str(other) for other in taken if other != cpu)
        pid = tasks[0]["pid"] if tasks else "PID"
        values = {
            "cpu": cpu,
            "estimate": estimate,
            "named": f", {how}{named}" if named else "",
            "move": f"sudo taskset --cpu-list --pid {others} {pid}",
        }
        found.append(Candidate("other_task", cpu, cost, True, values, (finding,)))
    return found


def _bound_here_alone(taken: Mapping[int, Finding], cpu: int) -> list[dict[str, Any]]:
    """The tasks that may run on this core only, and that have no equals bound to others."""

    def key(task: Mapping[str, Any]) -> tuple[Any, ...]:
        return (task["name"].rstrip("0123456789/:"), task["policy"], task.get("nice"))

    elsewhere = {
        key(task): task["percent"]
        for other, finding in taken.items()
        if other != cpu
        for task in finding.evidence.get("tasks", [])
        if task.get("bound")
    }
    return [
        task
        for task in taken[cpu].evidence.get("tasks", [])
        if task.get("bound") and task["percent"] > 3 * elsewhere.get(key(task), 0.0)
    ]


def _of_the_host(evidence: Evidence) -> list[Candidate]:
    """A sibling or the hypervisor, where the user asks about a core, or Linux shows the sibling.

    On a shared host one core always has more of it than another, and nothing in this system is at
    fault: without a question about it, it is reported as interference only.
    """
    asked = evidence.question.core
    shown = evidence.fit.get("machine", {}).get("topology", {}).get("threads_per_core", 1) > 1
    found = []
    words: tuple[tuple[Word, str], ...] = (("sibling", "shared"), ("hypervisor", "stolen"))
    for word, claim in words:
        for cpu, finding in _uneven(evidence, claim):
            if cpu == asked or (asked is None and shown):
                sharing = _command(evidence, "sharing")
                found.append(_costing(word, cpu, finding, sharing=sharing))
    return found


# --- where data is -------------------------------------------------------------------------------


def _addresses(evidence: Evidence) -> list[Candidate]:
    """Starts of a job differ, with fixed addresses they do not, and this processor aliases."""
    run, fixed = evidence.run("job"), evidence.run("addresses")
    if run is None or fixed is None:
        return []
    first, second = variation(run), variation(fixed)
    if not first.varies or second.spread_percent > first.spread_percent / 3:
        return []
    waits = [
        one
        for one in evidence.find("aliasing", "waits", "supported")
        if one.about.get("distance_bytes") == 4096
    ]
    cost = Interval(first.spread_percent, second.spread_percent, first.spread_percent)
    values = {
        "spread": f"{first.spread_percent:.0f} %",
        "fixed": f"{second.spread_percent:.1f} %",
        "estimate": f"such loads take {sentences.estimate(waits[0])} longer here"
        if waits
        else "whether such loads wait here is not known",
    }
    return [Candidate("aliasing", None, cost, bool(waits), values, tuple(waits))]
