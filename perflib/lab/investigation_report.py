"""The report of an investigation: one HTML file, first what is so, then how it is known."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perflib import experiments
from perflib.investigation.conclusion import MOST_FINDINGS, Conclusion
from perflib.investigation.evidence import PARTS, Evidence, Taken
from perflib.investigation.fit import spoilers
from perflib.lab.ledger import entries_table
from perflib.lab.machine import caches, checks, cores, facts, tlbs
from perflib.lab.pictures import picture
from perflib.lab.portrait import drawn
from perflib.lab.portrait_facts import facts_of, machine_of
from perflib.lab.report import how_measured, template, write_page
from perflib.lab.screen import WORDS
from perflib.lab.summary import summary
from perflib.lab.tables import STYLE, table, verdicts
from perflib.lab.theme import themed
from perflib.machine.doctor.checkup import Check
from perflib.model.errors import UserError
from perflib.model.finding import Finding

MOST_BYTES = 2_000_000
_PORTRAIT_DPI = 150  # the one that is looked at closely
_MOST_SPOILED = 3  # on the first screen; all are in the doctor's table
_MOST_VERDICTS = 150  # of a step; with 64 cores there are hundreds that found nothing
_SIGNS = {"healthy": "✓", "cause": "▲", "undecided": "?", "wrong": "✗"}
_MARKS = {"bad": ("▲", "cause"), "note": ("●", "note"), "good": ("✓", "fine")}
_MOST_S = 12.0  # of the processor's time, after which no figure is begun
_UNDRAWN = (ArithmeticError, LookupError, TypeError, ValueError, UserError)
_ORDER = ("symptom", "cause", "map", "fit")  # whose figures matter most


def write_investigation(evidence: Evidence, conclusion: Conclusion, path: Path) -> None:
    """Write the report of an investigation.

    Parameters
    ----------
    evidence
        What was measured; nothing is analysed anew.
    conclusion
        What it says: the first screen.
    path
        The HTML file to write, of at most ``MOST_BYTES``; all is inside it. Figures that do not
        fit are left out, and the report says how to see them.

    Raises
    ------
    MeasurementError
        The disk is full or may not be written.
    """
    write_page(_Page(evidence, conclusion).render(), path)


class _Page:
    """What the template is given; figures come last, as many as fit."""

    def __init__(self, evidence: Evidence, conclusion: Conclusion) -> None:
        self.evidence = evidence
        self.conclusion = conclusion
        self.machine = machine_of(evidence)
        self.known = facts_of(evidence)
        self.steps = [_step(evidence, taken) for taken in conclusion.steps]

    def render(self) -> str:
        values = self._values()
        values["contents"] = _contents(values)
        page = template("investigation.html.j2")
        end = time.process_time() + _MOST_S
        # The words are there in any case: what they leave is for figures.
        left = MOST_BYTES - len(page.render(values).encode())
        portrait = picture(drawn(self.known), _PORTRAIT_DPI)
        values["portrait"] |= vars(portrait)
        left -= portrait.size
        for taken, step in sorted(
            zip(self.conclusion.steps, self.steps, strict=True),
            key=lambda one: _ORDER.index(one[0].step.part),
        ):
            left = _add_figures(taken, step, left, end)
        return str(page.render(values))

    def _values(self) -> dict[str, Any]:
        conclusion, machine = self.conclusion, self.machine
        spoiled = spoilers(self.evidence.fit)
        found = self.evidence.fit.get("checks", [])
        return {
            "title": f"{machine.get('hostname', 'this machine')}: what slows it down",
            "about": _about(self.evidence, machine),
            "style": STYLE,
            "headline": conclusion.headline,
            "sign": _SIGNS[conclusion.headline.verdict],
            "word": WORDS[conclusion.headline.verdict].lower(),
            "spoiled": spoiled[:_MOST_SPOILED],
            "spoiled_more": len(spoiled[_MOST_SPOILED:]),
            "findings": conclusion.findings[:MOST_FINDINGS],
            "marks": _MARKS,
            "undecided": conclusion.undecided,
            "portrait": {"source": "", "width": 0, "height": 0, "alt": self.known.in_words()},
            "ledger": entries_table(conclusion.ledger).html() if conclusion.ledger else "",
            "explains": conclusion.ledger[0].explains if conclusion.ledger else "",
            "steps": self.steps,
            "map": conclusion.map,
            "facts": facts(machine) if machine else [],
            "caches": caches(machine).html() if machine else "",
            "tlbs": tlbs(machine).html() if machine.get("tlbs") else "",
            "cpus": cores(machine).html() if machine else "",
            "doctor": checks([Check(**one) for one in found]).html() if found else "",
        }


def _about(evidence: Evidence, machine: dict[str, Any]) -> str:
    """One line above the headline: which machine, when, how long."""
    runs = [run for run, _ in evidence.entries]
    starts = [str(run.provenance.get("start", ""))[:16].replace("T", " ") for run in runs]
    begin = min(filter(None, starts), default="")
    begin = begin or datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    minutes = sum(taken.seconds for taken in evidence.taken) / 60
    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'} in {minutes:.1f} min"
    named = [machine.get("hostname"), machine.get("processor"), f"{begin} UTC", count]
    return " · ".join(str(one) for one in named if one)


def _contents(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The sections below the first screen that there are."""
    names = {
        "ledger": "Ledger",
        "steps": "Steps",
        "map": "What the machine is like",
        "facts": "The machine",
        "doctor": "What the doctor says",
    }
    anchors = {"facts": "machine"}
    return [
        (anchors.get(name, name), words)
        for name, words in names.items()
        if name == "steps" or values[name]
    ]


# --- one step ------------------------------------------------------------------------------------


def _step(evidence: Evidence, taken: Taken) -> dict[str, Any]:
    """All that is said of a step; its figures are added later."""
    step, run = taken.step, taken.run
    experiment = experiments.get(step.experiment)
    in_short = [PARTS[step.part], experiment.title]
    in_short.append("left out" if run is None else f"{taken.seconds:.0f} s")
    values: dict[str, Any] = {
        "name": step.name,
        "why": step.why,
        "command": step.command,
        "skipped": taken.skipped if run is None else "",
        "figures": [],
        "left_out": "",
        "run": "",
    }
    if run is None:
        return values | {"in_short": " · ".join(in_short)}
    found = evidence.findings(step.name)
    sentences = summary(found)
    shown = _shown_verdicts(found)
    published = experiment.published()
    return values | {
        "in_short": " · ".join(in_short),
        "run": run.id,
        "sentences": sentences,
        "problems": run.provenance.get("problems", []),
        "verdicts": verdicts(shown).html() if shown else "",
        "verdicts_more": len(found) - len(shown),
        "published": table(published).html() if published is not None else "",
        "how": [("question", experiment.question), ("run", run.id), *how_measured(run)],
    }


def _shown_verdicts(found: Sequence[Finding]) -> list[Finding]:
    """All, in their order; of very many those first that are not what a healthy core says."""
    if len(found) <= _MOST_VERDICTS:
        return list(found)
    order = {"supported": 0, "inconclusive": 1, "refuted": 2}
    ranked = sorted(found, key=lambda one: (order[one.verdict], one.kind != "anomaly"))
    return ranked[:_MOST_VERDICTS]


def _add_figures(taken: Taken, step: dict[str, Any], left: int, end: float) -> int:
    """Draw a step's figures, each once, while there is room and time; returns the room left."""
    if taken.run is None:
        return left
    experiment = experiments.get(taken.step.experiment)
    try:
        drawings = experiment.drawings(taken.run)
    except UserError:  # all of its results are wrong
        return left
    left_out = []
    with themed():
        for name, draw in drawings.items():
            if left <= 0 or time.process_time() > end:
                left_out.append(name.replace("_", " "))
                continue
            try:
                made = picture(draw())
            except _UNDRAWN as error:  # no figure is worth losing what was concluded
                left_out.append(f"{name.replace('_', ' ')} (it could not be drawn: {error})")
                continue
            if made.size > left:
                left_out.append(name.replace("_", " "))
                continue
            left -= made.size
            caption = _caption(experiment.plots, name)
            step["figures"].append(
                {**vars(made), "alt": f"{experiment.title}: {caption}", "caption": caption}
            )
    step["left_out"] = ", ".join(left_out)
    return left


def _caption(plots: Mapping[str, str], name: str) -> str:
    """What a figure shows, in the experiment's words; some names have a part that varies."""
    for known, words in plots.items():
        head, brace, tail = known.partition("{")
        end = tail.partition("}")[2]
        if name == known or (brace and name.startswith(head) and name.endswith(end)):
            varies = name[len(head) : len(name) - len(end)] if brace else ""
            return f"{words} ({varies.replace('_', ' ')})" if varies else str(words)
    return name.replace("_", " ")
