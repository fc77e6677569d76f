"""What an investigation concludes: headline, at most seven findings, what is open, the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from perflib.investigation.causes import CAUSES, Candidate, Word, candidates, slowness, wrong_cores
from perflib.investigation.evidence import Evidence, Step, Taken
from perflib.investigation.fit import WHY, spoilers
from perflib.investigation.ledger import Entry, ledger
from perflib.model import sentences
from perflib.model.finding import Finding

MOST_FINDINGS = 7
_MOST_OPEN = 7
_SENSITIVITY_MINUTES = 3.0
_MOST_CORES = 4  # named in one sentence
_HEALTHY_PERCENT = 3.0  # what a core may be slower without being known to be
_LONGEST_MIN = 60.0

Verdict = Literal["healthy", "cause", "undecided", "wrong"]
Mark = Literal["bad", "note", "good"]


@dataclass(frozen=True)
class Headline:
    """The one sentence.

    ``cause`` is a word of ``perflib.investigation.causes.CAUSES``, or ``None``.
    """

    verdict: Verdict
    plain: str
    about: Mapping[str, Any]
    cause: str | None


@dataclass(frozen=True)
class ShownFinding:
    """A finding on the screen: what is so, and what to do about it (may be empty).

    ``mark``: ``bad`` (the cause), ``note`` (interference, or good to know), ``good``.
    """

    mark: Mark
    plain: str
    do: str
    finding: Finding

    def to_dict(self) -> dict[str, Any]:
        """As ``run`` prints a finding, with what to do."""
        return {**self.finding.to_dict(), "plain": self.plain, "do": self.do, "mark": self.mark}


@dataclass(frozen=True)
class Open:
    """What could not be decided, and the run that would: how long it takes, about."""

    plain: str
    command: str
    minutes: float


@dataclass(frozen=True)
class Conclusion:
    """All that is shown.

    Parameters
    ----------
    spoiled
        What spoils measurements here, with the command that changes it; shown first.
    map
        What this machine is like, one line each.
    fit_s
        How long it took to see whether the machine is fit to measure, the first step.
    """

    headline: Headline
    findings: Sequence[ShownFinding]
    undecided: Sequence[Open]
    ledger: Sequence[Entry]
    steps: Sequence[Taken]
    spoiled: Sequence[str]
    map: Sequence[str]
    fit_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it; the report's path is added by whoever writes one."""
        return {
            "headline": asdict(self.headline),
            "findings": [one.to_dict() for one in self.findings],
            "undecided": [asdict(one) for one in self.undecided],
            "steps": [
                {"name": "fit", "why": WHY, "run": None, "seconds": self.fit_s, "skipped": None},
                *(
                    {
                        "name": one.step.name,
                        "why": one.step.why,
                        "run": one.run.id if one.run is not None else None,
                        "seconds": one.seconds,
                        "skipped": one.skipped or None,
                    }
                    for one in self.steps
                ),
            ],
            "ledger": [one.to_dict() for one in self.ledger],
            "spoiled": list(self.spoiled),
            "map": list(self.map),
        }


def conclude(evidence: Evidence) -> Conclusion:
    """What the evidence says, as far as it goes."""
    found = candidates(evidence)
    certain = [one for one in found if one.certain]
    wrong = wrong_cores(evidence)
    headline = _wrong_first(wrong, _headline(evidence, certain, found))
    if machine := evidence.question.recorded:
        headline = replace(headline, plain=f"{sentences.RECORDED}{machine}: {headline.plain}")
    lines = _map(evidence)
    return Conclusion(
        headline=headline,
        findings=_findings(evidence, [*wrong, *certain])[:MOST_FINDINGS],
        undecided=_open(evidence, headline)[:_MOST_OPEN],
        ledger=ledger(evidence, certain[0] if certain else None),
        steps=list(evidence.taken),
        spoiled=[
            f"{one.name}: {one.now}" + (f" ({one.command})" if one.command else "")
            for one in spoilers(evidence.fit)
        ],
        map=lines,
        fit_s=evidence.fit.get("seconds", 0.0),
    )


# --- the headline --------------------------------------------------------------------------------


def _wrong_first(wrong: Sequence[Candidate], otherwise: Headline) -> Headline:
    """A wrong result comes before whatever else is found; after one of a single sample it stays."""
    if not wrong:
        return otherwise
    first = wrong[0]
    about = {**first.findings[0].about, "certain": first.certain}
    if first.certain:
        return Headline("wrong", first.plain, about, first.word)
    said = f"{first.values['result']}."
    if otherwise.verdict == "healthy":
        return Headline("undecided", said, about, first.word)
    return replace(otherwise, plain=f"{said} {otherwise.plain}")


def _headline(
    evidence: Evidence, certain: Sequence[Candidate], found: Sequence[Candidate]
) -> Headline:
    job = evidence.step("job")
    if job is not None and job.run is None and not certain:
        plain = f"Your job could not be measured: {_first_sentence(job.skipped)}"
        return Headline("undecided", plain, {"job": evidence.question.job}, None)
    if certain:
        first = certain[0]
        about = {"cpu": first.cpu, "certain": True, "cost_percent": first.cost.effect}
        return Headline("cause", first.plain, about, first.word)
    slow = slowness(evidence)
    if not slow:
        step = evidence.step("symptom")
        why = step.skipped if step is not None and step.skipped else "nothing was measured"
        return Headline("undecided", f"There is no answer: {why}.", {}, None)
    known = [*slow.values(), *slowness(evidence, "job").values()]
    if found:
        first = found[0]
        plain = f"It is not certain, but likely: {first.plain}"
        return Headline("undecided", plain, {"cpu": first.cpu, "certain": False}, first.word)
    bound = max(one.high for one in known)
    settled = all(one.verdict == "refuted" for one in known)
    if len(slow) > 1 and (settled or bound <= _HEALTHY_PERCENT):
        return Headline("healthy", _healthy(evidence, slow, bound), {"within_percent": bound}, None)
    if len(slow) == 1:
        (cpu,) = slow
        plain = f"cpu{cpu} is the only core that may be used here: there is none to compare it with"
        return Headline("undecided", plain + ".", {"cpu": cpu}, None)
    widest = max(known, key=lambda one: one.high if math.isfinite(one.high) else math.inf)
    plain = f"It could not be decided whether a core is slow: {widest.plain}."
    return Headline("undecided", plain, {"cpu": widest.about["cpu"], "certain": False}, None)


def _healthy(evidence: Evidence, slow: Mapping[int, Finding], bound: float) -> str:
    question = evidence.question
    within = f"{max(bound, 0.1):.1f} %"
    if question.core is not None:
        plain = f"cpu{question.core} is not slower in itself than cpu{question.against}"
        plain += f": by {within} at most."
    else:
        plain = f"Nothing is wrong with this machine: of its {len(slow)} cores none is slower in "
        plain += f"itself by more than {within}{', nor with your job' if question.job else ''}."
    worst = _worst(evidence, _INTERFERENCE)
    if worst is not None:
        plain += f" But there is interference: {worst.plain}."
    return plain


def _worst(evidence: Evidence, claims: Iterable[str]) -> Finding | None:
    """The interference that costs most."""
    found = [one for claim in claims for one in evidence.find("symptom", claim, "supported")]
    return max(found, key=lambda one: one.effect, default=None)


# --- findings ------------------------------------------------------------------------------------


def _findings(evidence: Evidence, certain: Sequence[Candidate]) -> list[ShownFinding]:
    shown: list[ShownFinding] = []

    def show(mark: Mark, finding: Finding, do: str = "", plain: str = "") -> None:
        if all(finding is not one.finding for one in shown):
            text = (plain or finding.plain).rstrip(".") + "."
            shown.append(ShownFinding(mark, text, do, finding))

    for candidate in certain:
        if not candidate.findings:
            continue
        first, *rest = candidate.findings
        do, plain = (candidate.do, candidate.plain) if candidate.certain else ("", "")
        show("bad", first, do, plain)
        for finding in rest:
            show("bad", finding)
    for claim, word in _INTERFERENCE.items():
        found = evidence.find("symptom", claim, "supported")
        worst = sorted(found, key=lambda one: -one.effect)[:_MOST_CORES]
        if worst:
            also = "".join(
                f"; of cpu{one.about['cpu']}: {sentences.estimate(one)}" for one in worst[1:]
            )
            show("note", worst[0], _what_to_do(evidence, word), worst[0].plain + also)
    for step in ("symptom again", "symptom", "job"):
        fine = evidence.find(step, "slower", "refuted")
        if fine:
            plain = (sentences.together(fine) or fine[0].plain).rstrip(".")
            ours = ", with our own simulation" if evidence.question.job and step != "job" else ""
            show("good", fine[0], plain=plain + ours)
            break
    for finding in _map_findings(evidence):
        show("note", finding)
    return shown


# Claims about interference, and the cause whose remedy is theirs.
_INTERFERENCE: Mapping[str, Word] = {
    "taken": "other_task",
    "shared": "sibling",
    "stolen": "hypervisor",
    "softirq": "softirq",
}


def _what_to_do(evidence: Evidence, word: Word) -> str:
    """What ends an interference: the doctor's command, where it has one."""
    if word == "softirq":
        return CAUSES["softirq"].do
    check = {"sibling": "sharing", "hypervisor": "steal", "other_task": "load"}[word]
    for one in evidence.fit.get("checks", []):
        if one["name"] == check and one["command"]:
            return str(one["command"])
    return "" if word == "other_task" else CAUSES["hypervisor"].do


# Which findings stand for what the machine is like: by step, claims in the order of interest.
_MAP: Mapping[str, Sequence[str]] = {
    "levels": ("memory", "cache"),
    "iTLB reach": ("knee", "ring_knee", "knee_shared", "ring_knee_shared"),
    "lines": ("groups", "forwarded"),
    "distances": ("groups", "distances"),
    "store and load": ("waits",),
}


def _map_findings(evidence: Evidence) -> list[Finding]:
    """One finding of each step."""
    return [found[0] for found in _mapped(evidence).values() if found]


def _mapped(evidence: Evidence) -> dict[str, list[Finding]]:
    """What was decided, by step, the most interesting first."""
    return {
        step: [
            one
            for claim in claims
            for one in evidence.find(step, claim)
            if one.verdict != "inconclusive" and one.about.get("distance_bytes", 4096) == 4096
        ]
        for step, claims in _MAP.items()
    }


def _map(evidence: Evidence) -> list[str]:
    """One line for each thing that was decided, and for what the kernel says otherwise."""
    notes = evidence.fit.get("machine", {}).get("topology", {}).get("notes", [])
    found = [one.plain for each in _mapped(evidence).values() for one in each]
    return [f"{text.rstrip('.')}." for text in (*notes, *found)]


# --- what is not decided -------------------------------------------------------------------------


def _open(evidence: Evidence, headline: Headline) -> list[Open]:
    found = []
    for taken in evidence.taken:
        if taken.skipped:
            plain = f"{taken.step.name}: left out, {_first_sentence(taken.skipped)}"
            found.append(Open(plain, taken.step.command, _minutes(taken.step.budget_s)))
    for step in ("symptom again", "symptom", "job"):
        wide = evidence.find(step, "slower", "inconclusive")
        taken_step = evidence.step(step)
        if wide and taken_step is not None and headline.verdict == "undecided":
            worst = max(wide, key=lambda one: one.high - one.low)
            found.insert(0, _longer(worst, taken_step.step))
            break
    for step, claims in {"profile": ("stands_out",), "iTLB reach": ("knee", "ring_knee")}.items():
        taken_step = evidence.step(step)
        for one in (one for claim in claims for one in evidence.find(step, claim, "inconclusive")):
            if taken_step is not None:
                found.append(_longer(one, taken_step.step))
                break
    if headline.verdict == "healthy" and evidence.question.job:
        plain = "No core is slow with your job. What all of them wait for was not measured."
        command = f"perflib sensitivity -- {evidence.question.job}"
        found.append(Open(plain, command, _SENSITIVITY_MINUTES))
    return found


def _first_sentence(text: str) -> str:
    return text.splitlines()[0].rstrip(".") + "."


def _minutes(seconds: float) -> float:
    return round(max(0.5, seconds / 60), 1)


def _longer(finding: Finding, step: Step) -> Open:
    """The same run for as long as it takes to halve an interval, or to reach the threshold."""
    half = (finding.high - finding.low) / 2
    times = 4.0
    if math.isfinite(half) and finding.threshold:
        times = min(40.0, max(2.0, (2 * half / finding.threshold) ** 2))
    seconds = min(60 * _LONGEST_MIN, step.budget_s * times)
    params = {**step.params, "budget_s": round(seconds)}
    longer = Step(step.name, step.part, step.why, step.experiment, params, seconds)
    return Open(finding.plain.rstrip(".") + ".", longer.command, _minutes(seconds))
