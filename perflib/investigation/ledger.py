"""The ledger of an investigation: every hypothesis, and which part of the extra time it explains.

The extra time is what the same work takes longer on a core than on the others, all in all. Parts
that the decomposition of KV measures are in percent of the work's time; what is within a core's
own speed (code, pages, memory, aliasing) is decided by the runs that look for causes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from perflib.experiments.code_size.claims import SLOWER_L1I_MISSES
from perflib.investigation.causes import Candidate
from perflib.investigation.evidence import Evidence
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.stats.interval import NO_INTERVAL, Interval

State = Literal["measured", "excluded", "open", "not tested"]
_LEAST_PERCENT = 1.0  # of extra time that is worth explaining


@dataclass(frozen=True)
class Entry:
    """One hypothesis.

    Parameters
    ----------
    hypothesis, explains
        The cause, and of which extra time.
    state
        ``measured`` (it explains a part), ``excluded`` (it explains next to none), ``open`` (it was
        tested, and decides nothing), ``not tested``.
    percent
        What it adds to the time of the work, in percent, with its interval; NaN: not known.
    share_percent
        Of the extra time, with the part's uncertainty; NaN where there is none to speak of.
    because
        Why, in a sentence.
    run
        The run that says so; empty without one.
    """

    hypothesis: str
    explains: str
    state: State
    percent: Interval
    share_percent: Interval
    because: str
    run: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        known = {
            name: [value if math.isfinite(value) else None for value in interval]
            for name, interval in (("percent", self.percent), ("share_percent", self.share_percent))
        }
        return asdict(self) | known


def ledger(evidence: Evidence, headline: Candidate | None) -> list[Entry]:
    """One entry a hypothesis, and what none of them explains."""
    total = _subject(evidence, headline)
    if total is None:
        return []
    cpu = total.about["cpu"]
    explains = f"the extra time of cpu{cpu}"
    extra = Interval(total.effect, total.low, total.high)
    if evidence.question.job and headline is not None and headline.cpu == cpu:
        extra = headline.cost  # the job's, which our own simulation need not have
    run = _run_of(evidence, "symptom")
    parts = {
        name: Interval(*(math.nan if end is None else float(end) for end in ends))
        for name, ends in total.evidence.get("relative_to_others", {}).items()
    }

    def of_part(hypothesis: str, part: str, how: str) -> Entry:
        return _entry(hypothesis, explains, parts.get(part, NO_INTERVAL), extra, how, run)

    entries = [of_part(*one) for one in _PARTS]
    entries += [_softirq(evidence, cpu, explains, extra, run)]
    entries += [one(evidence, cpu, explains) for one in _WITHIN]
    own = extra if evidence.question.job else parts.get("own speed", NO_INTERVAL)
    if headline is not None and headline.cpu == cpu:
        entries = [_of_the_job(one, headline, own, extra, evidence) for one in entries]
    named = [one for one in entries if one.state == "measured" and one.hypothesis in _OWN_NAMES]
    rest = own
    for one in named:
        rest = _without(rest, one, own)
    return [*entries, _entry("unexplained", explains, rest, extra, _REST, run, always=True)]


def _of_the_job(
    entry: Entry, headline: Candidate, own: Interval, extra: Interval, evidence: Evidence
) -> Entry:
    """What the profile says of the job: a function that grew, or more code than elsewhere."""
    run = _run_of(evidence, "profile")
    if headline.word == "function" and entry.hypothesis == _JOB:
        found = headline.findings[0]
        because = f"It is {headline.values['function']}, beyond what all others have in common."
        of_event = found.facts["of_event"]
        return _entry(entry.hypothesis, entry.explains, of_event, extra, because, run, always=True)
    if headline.word == "code_size" and entry.hypothesis == "instruction cache":
        because = headline.findings[0].plain + ", and no function stands out by itself."
        return _entry(entry.hypothesis, entry.explains, own, extra, because, run, always=True)
    return entry


def _without(rest: Interval, entry: Entry, own: Interval) -> Interval:
    """What is left of a core's own speed without a hypothesis' part."""
    part = entry.percent
    if not math.isfinite(part.effect):
        if not math.isfinite(entry.share_percent.effect):  # how much of it is not known
            return rest
        part = Interval(*(own.effect * end / 100 for end in entry.share_percent))
    half = math.hypot(rest.high - rest.low, part.high - part.low) / 2
    left = max(0.0, rest.effect - part.effect)
    return Interval(left, max(0.0, left - half), left + half)


_REST = "The core's own speed, as far as no hypothesis explains it."
_PARTS = (
    ("other tasks", "other tasks", "Time ready to run and not running, from the kernel's account."),
    ("quota", "quota", "Time stopped by the control group's quota; part of other tasks."),
    ("sibling", "sibling", "All samples compared with those with the core alone."),
    ("hypervisor", "hypervisor", "Wall time that is neither the job's nor another task's."),
    ("frequency", "clock", "The length of a cycle, from chains of additions."),
    ("interrupts", "interrupts", "Mean over typical time of samples with the core alone."),
)


def _subject(evidence: Evidence, headline: Candidate | None) -> Finding | None:
    """The total of the core in question: the headline's, the one in question, or the slowest."""
    totals = {one.about["cpu"]: one for one in evidence.find("symptom", "total")}
    for cpu in (headline.cpu if headline is not None else None, evidence.question.core):
        if cpu in totals:
            return totals[cpu]
    known = [one for one in totals.values() if math.isfinite(one.effect)]
    return max(known, key=lambda one: one.effect, default=None)


def _entry(
    hypothesis: str,
    explains: str,
    percent: Interval,
    extra: Interval,
    because: str,
    run: str,
    *,
    always: bool = False,
) -> Entry:
    state: State
    if not math.isfinite(percent.effect):
        state = "not tested"
    elif percent.high < _LEAST_PERCENT:
        state = "excluded"
    elif percent.low > 0 and percent.effect >= _LEAST_PERCENT:
        state = "measured"
    else:
        state = "open"
    if always and state == "excluded":
        state = "measured"
    there_is = extra.low > 0
    share = Interval(*(100 * end / extra.effect for end in percent)) if there_is else NO_INTERVAL
    return Entry(hypothesis, explains, state, percent, share, because, run)


def _untested(hypothesis: str, explains: str, because: str) -> Entry:
    return Entry(hypothesis, explains, "not tested", NO_INTERVAL, NO_INTERVAL, because, "")


def _softirq(evidence: Evidence, cpu: int, explains: str, extra: Interval, run: str) -> Entry:
    found = {one.about["cpu"]: one for one in evidence.find("symptom", "softirq")}
    because = "Ticks of the kernel's clock in soft interrupts; part of interrupts or other tasks."
    if cpu not in found:
        return _untested("softirq", explains, because)
    mine = found[cpu]
    others = [one for other, one in found.items() if other != cpu]
    least = min((one.effect for one in others), default=0.0)
    percent = Interval(
        mine.effect - least,
        mine.low - max((one.high for one in others), default=0.0),
        mine.high - min((one.low for one in others), default=0.0),
    )
    return _entry("softirq", explains, percent, extra, because, run)


# --- within a core's own speed -------------------------------------------------------------------


def _reported(
    hypothesis: str, explains: str, found: Sequence[tuple[Finding, str]], missing: str
) -> Entry:
    """An entry of a finding's verdict, of the run that decided it if one did."""
    for wanted, state in (("supported", "measured"), ("refuted", "excluded"), ("", "open")):
        for finding, run in found:
            if wanted in ("", finding.verdict):
                shown: State = state  # type: ignore[assignment]
                known = finding.unit == EXPLAINS.unit
                share = (
                    Interval(finding.effect, finding.low, finding.high) if known else NO_INTERVAL
                )
                because = finding.plain + "."
                return Entry(hypothesis, explains, shown, NO_INTERVAL, share, because, run)
    return _untested(hypothesis, explains, missing)


def _run_of(evidence: Evidence, step: str) -> str:
    run = evidence.run(step)
    return run.id if run is not None else ""


def _why_not(evidence: Evidence, *steps: str) -> str:
    """Why no step tested it."""
    for name in steps:
        taken = evidence.step(name)
        if taken is not None and taken.skipped:
            return f"Not looked at: {taken.skipped}."
    return "Not looked at: nothing wants it as an explanation."


def _explained(hypothesis: str, cause: str) -> Callable[[Evidence, int, str], Entry]:
    def made(evidence: Evidence, cpu: int, explains: str) -> Entry:
        found = [
            (one, _run_of(evidence, step))
            for step in ("code pages", "calls")
            for one in evidence.find(step, EXPLAINS.name, cause=cause)
            if f"cpu{cpu}" in str(one.about["explains"]).split()
        ]
        return _reported(hypothesis, explains, found, _why_not(evidence, "code pages", "calls"))

    return made


def _instruction_cache(evidence: Evidence, cpu: int, explains: str) -> Entry:
    """What large code's extra time says; failing that, the counter-test of Guerri et al. 2015.

    A core that is as fast as the others while most lines of its code miss the first-level cache is
    not slow because of such misses: no program misses with more than all of its lines.
    """
    explained = _explained("instruction cache", "instruction cache misses")(evidence, cpu, explains)
    if explained.state in ("measured", "excluded"):
        return explained
    for step in ("calls", "code pages"):
        for found in evidence.find(step, SLOWER_L1I_MISSES.name, "refuted", cpu=cpu):
            because = (
                f"{found.plain}. There {found.facts['missing_percent']:.0f} of 100 lines or more "
                "miss the cache, by the model of code at random."
            )
            nothing = Interval(found.effect, found.low, found.high)
            return Entry(
                explained.hypothesis, explains, "excluded", nothing, NO_INTERVAL, because,
                _run_of(evidence, step),
            )  # fmt: skip
    return explained


def _claimed(
    hypothesis: str, claims: Mapping[str, Sequence[str]]
) -> Callable[[Evidence, int, str], Entry]:
    """Of claims about a core, by step."""

    def made(evidence: Evidence, cpu: int, explains: str) -> Entry:
        found = [
            (one, _run_of(evidence, step))
            for step, names in claims.items()
            for name in names
            for one in evidence.find(step, name)
            if one.about.get("cpu", cpu) == cpu and one.about.get("distance_bytes", 4096) == 4096
        ]
        return _reported(hypothesis, explains, found, _why_not(evidence, *claims))

    return made


def _placement(evidence: Evidence, cpu: int, explains: str) -> Entry:
    nodes = len(evidence.fit.get("machine", {}).get("nodes", []))
    if nodes <= 1:
        because = "There is one memory node: no page is farther away than another."
        zero = Interval(0.0, 0.0, 0.0)
        return Entry("page cache placement", explains, "excluded", zero, NO_INTERVAL, because, "")
    because = f"There are {nodes} nodes: cpu{cpu} may read a page cached on another one."
    return _untested("page cache placement", explains, because)


def _data_tlb(_evidence: Evidence, _cpu: int, explains: str) -> Entry:
    because = "Not looked at: no run compares cores by misses of the data TLB."
    return _untested("data TLB", explains, because)


_JOB = "a function of the job"
_OWN_NAMES = (_JOB, "instruction cache", "iTLB", "memory distance", "aliasing")


def _profiled(evidence: Evidence, _cpu: int, explains: str) -> Entry:
    found = [(one, _run_of(evidence, "profile")) for one in evidence.find("profile", "stands_out")]
    return _reported(_JOB, explains, found, _why_not(evidence, "profile"))


_WITHIN: Sequence[Callable[[Evidence, int, str], Entry]] = (
    _profiled,
    _instruction_cache,
    _explained("iTLB", "iTLB misses"),
    _data_tlb,
    _claimed(
        "memory distance",
        {"memory": ("slower_memory", "slower_first_level"), "nodes": ("slower",)},
    ),
    _claimed("aliasing", {"buffers": ("waits",), "aliasing": ("waits",)}),
    _placement,
)
