"""An investigation step by step in a notebook: what comes next and why, what was found, the end."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import MutableMapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from perflib import experiments
from perflib.investigation.conclusion import Conclusion, conclude
from perflib.investigation.evidence import PARTS, Evidence, Part, Question, Step, Taken
from perflib.investigation.fit import spoilers
from perflib.investigation.investigation import Investigation
from perflib.investigation.rules import RULES, Rule
from perflib.investigation.signs import evaluate
from perflib.lab.interface import Findings, RunView, bound
from perflib.lab.ledger import entries_table
from perflib.lab.markup import escape
from perflib.lab.notebook import given_names
from perflib.lab.screen import MARKS, WORDS, screen
from perflib.lab.summary import summary
from perflib.lab.tables import STYLE, Table, styles
from perflib.measure.progress import Reporter
from perflib.model.errors import UserError, choose
from perflib.model.escape import lines, visible

AT_END = "the plan is at its end"
_QUICK_MINUTES = 2.0  # of the preset quick, with a reader who waits; full: as the command does
_MOST_SENTENCES = 8
_LOOK = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
_MARK_WORDS = {"bad": "cause", "note": "note", "good": "fine", "open": "open"}


class LeftOut(str):
    """Why a step was left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return AT_END if self == AT_END else lines(f"left out: {self}")


@dataclass(frozen=True, repr=False)
class Proposal:
    """What comes next, and why; false where the plan is at its end.

    Parameters
    ----------
    step
        It, or ``None``.
    left_s
        The time that is left for measuring.
    """

    step: Step | None
    left_s: float

    def __bool__(self) -> bool:
        return self.step is not None

    def _words(self) -> list[tuple[str, str]]:
        if self.step is None:
            return []
        seconds = f"up to {self.step.budget_s:.0f} s of measuring"
        left = "" if math.isinf(self.left_s) else f"; {self.left_s:.0f} s are left"
        return [
            ("step", f"{self.step.name} ({PARTS[self.step.part].lower().rstrip('?')})"),
            ("why", self.step.why),
            ("command", self.step.command),
            ("time", seconds + left),
        ]

    def __repr__(self) -> str:
        words = [visible(f"{name:8s} {text}") for name, text in self._words()]
        return "\n".join(words) or AT_END

    def _repr_html_(self) -> str:
        if self.step is None:
            return f"<p>{AT_END}</p>"
        body = "".join(
            f"<dt>{name}</dt><dd><{tag}>{escape(text)}</{tag}></dd>"
            for name, text in self._words()
            for tag in ["code" if name == "command" else "span"]
        )
        return f'<style>{_LOOK}</style><dl class="perflib-investigation">{body}</dl>'


@dataclass(frozen=True, repr=False)
class ConclusionView(Conclusion):
    """What all of it says, as it is shown: the headline, what was found, what is not decided."""

    def __repr__(self) -> str:
        return "\n".join(map(visible, screen(self)))

    def _repr_html_(self) -> str:
        from perflib.lab.report import template

        shown = template("conclusion.html.j2").render(
            found=self,
            word=WORDS[self.headline.verdict],
            marks={mark: (sign, _MARK_WORDS[mark]) for mark, sign in MARKS.items()},
            style=STYLE + _LOOK,
        )
        return str(shown)


class InvestigationView:
    """An investigation, one step at a time. It is made by `investigate`."""

    def __init__(self, made: Investigation) -> None:
        self._made = made
        self._headline = ""  # the last that was shown

    @property
    def folder(self) -> Path:
        """Where the plan, the runs and the report are kept."""
        return self._made.folder

    @property
    def evidence(self) -> Evidence:
        """All that is known so far."""
        return self._made.evidence

    # --- what comes next -------------------------------------------------------------------------

    @property
    def fit(self) -> Table:
        """What spoils measurements here, first things first."""
        checks = [one for one in self.evidence.fit.get("checks", []) if one["state"] == "warn"]
        first = [one.name for one in spoilers(self.evidence.fit)]
        checks.sort(key=lambda one: one["name"] not in first)
        rows = [
            [
                one["name"],
                "▲ spoils what is measured" if one["name"] in first else "– good to know",
                one["now"],
                one["cost"],
                one["command"],
            ]
            for one in checks
        ] or [["nothing", "", self._no_check(), "", ""]]
        kinds = styles([("name", "", "prose", "prose", "command")] * len(rows))
        return Table(("what", "state", "now", "what it costs", "command"), rows, kinds)

    def _no_check(self) -> str:
        if machine := self.evidence.question.recorded:
            return f"{machine} is a recorded machine: nothing is measured, and it is not examined"
        return "no check of this machine warns"

    @property
    def next(self) -> Proposal:
        """The step that the plan proposes now, with its reason."""
        step = self._made.next()
        if step is None and not self._made.finished:
            self._made.go()  # takes nothing more: notes that the plan is at its end
        return Proposal(step, math.inf if self._made.replayed else self._made.left_s)

    @property
    def proposed(self) -> list[str]:
        """The names of all steps that the rules propose now, the next one first."""
        return [step.name for step in self._made.proposed()]

    @property
    def plan(self) -> Table:
        """The rules: which run comes when, and why; and what became of each so far."""
        proposed = self._made.proposed()
        rows = [
            [
                rule.name,
                PARTS[rule.part],
                rule.when,
                rule.experiment,
                _legible(rule.why),
                self._state(rule, proposed),
            ]
            for rule in RULES
        ]
        kinds = styles([("name", "", "", "", "prose")] * len(rows))
        return Table(("step", "part", "when", "experiment", "why", "now"), rows, kinds)

    def _state(self, rule: Rule, proposed: list[Step]) -> str:
        holds = bool(evaluate(rule.when, self.evidence))
        taken = self.evidence.step(rule.name)
        if taken is not None:
            return "" if not holds else f"left out: {taken.skipped}" if taken.skipped else "taken"
        names = [step.name for step in proposed]
        if holds and rule.name in names:
            return "next" if rule.name == names[0] else "may come"
        return ""

    # --- take it, leave it out, or do something else ---------------------------------------------

    def take(self, which: str | Step | Proposal | None = None, **changed: Any) -> RunView | LeftOut:
        """Make the run of a step, say what it found, and return it.

        Parameters
        ----------
        which
            The proposed step unless given: another one that the rules propose now, by name.
        changed
            Parameters of its run, by name, instead of the plan's.

        Returns
        -------
        The run, as ``pl.load`` gives it; or why the step was left out.

        Raises
        ------
        UserError
            There is no such step or parameter; nothing was measured.
        """
        step = self._wanted(which)
        if step is None:
            return LeftOut(AT_END)
        if changed:
            self._measuring()
            given = {**step.params, **changed}
            wanted = experiments.get(step.experiment).params(given, "quick")
            params = wanted.model_dump(mode="json", include=set(given))
            step = replace(step, params=params, budget_s=wanted.budget_s)
        return self._taken(step)

    def skip(self, why: str, which: str | Step | Proposal | None = None) -> LeftOut:
        """Leave the proposed step out, or another one, for a reason that the report repeats."""
        if not why.strip():
            msg = "why is the step left out? Say it in a sentence: the report repeats it"
            raise UserError(msg)
        step = self._wanted(which)
        if step is None:
            return LeftOut(AT_END)
        self._made.skip(step, why)
        return LeftOut(why)

    def run(
        self,
        experiment: str,
        *,
        why: str = "A question of the reader's own.",
        name: str | None = None,
        part: Part = "cause",
        **given: Any,
    ) -> RunView | LeftOut:
        """A step of one's own: any experiment; it is kept in the plan like the others.

        Parameters
        ----------
        experiment, given
            Which run, and its parameters by name, added to those of the preset ``quick``.
        why
            What is looked for, in a sentence for the reader of the report.
        name
            Of the step; the experiment's unless given.
        part
            ``cause`` or ``map``.

        Raises
        ------
        UserError
            There is no such experiment or parameter, or the name is taken; nothing was measured.
        """
        self._measuring()
        step = self._made.own(experiment, given, why, name, part)
        if missing := experiments.get(experiment).unavailable():
            return self.skip(missing, step)
        return self._taken(step)

    def go(self) -> ConclusionView:
        """Take all other steps of the plan."""
        while (step := self.next.step) is not None:
            taken = self._taken(step, briefly=self._made.replayed)
            if isinstance(taken, LeftOut):
                print(f"  {taken!r}")
        return self.conclusion

    def _wanted(self, which: str | Step | Proposal | None) -> Step | None:
        if which is None:
            return self.next.step
        if isinstance(which, Proposal):
            which = which.step
        if isinstance(which, Step):
            self._untaken(which.name)
        if not isinstance(which, str):
            return which
        self._untaken(which)
        steps = {step.name: step for step in [*self._made.proposed(), self.next.step] if step}
        if which not in steps:
            raise UserError(choose("step", which, steps))
        return steps[which]

    def _untaken(self, name: str) -> None:
        taken = self.evidence.step(name)
        if taken is not None:
            became = "left out" if taken.run is None else "taken"
            msg = f"step {name!r} was {became} already; a run of one's own: .run({name!r}, ...)"
            if name not in experiments.NAMES:
                msg = msg.replace(f".run({name!r}", f".run({taken.step.experiment!r}")
            raise UserError(msg)

    def _measuring(self) -> None:
        if self._made.replayed:
            msg = "a replay measures nothing: it looks runs up in the folder; "
            msg += f"pl.investigate(resume={str(self.folder)!r}) continues it"
            raise UserError(msg)

    def _taken(self, step: Step, *, briefly: bool = False) -> RunView | LeftOut:
        _say(f"{step.name}: {step.why}")
        try:
            looked_up = self._made.replayed or self.evidence.question.recorded
            with nullcontext() if looked_up else Reporter(step.name) as progress:
                taken = self._made.take(step, progress)
        except KeyboardInterrupt:
            print(f"interrupted; pl.investigate(resume={str(self.folder)!r}) continues it")
            raise
        if taken.run is None:
            return LeftOut(taken.skipped)
        sentences = [] if briefly else summary(self.evidence.findings(step.name))
        for sentence in sentences[:_MOST_SENTENCES]:
            _say(sentence, "  ")
        if len(sentences) > _MOST_SENTENCES:
            more = len(sentences) - _MOST_SENTENCES
            print(f"  ... and {more} more: .findings({step.name!r}).summary()")
        headline = conclude(self.evidence).headline.plain
        if headline != self._headline:
            self._headline = headline
            _say(f"so far: {headline}")
        return bound(taken.run)

    # --- what it says ----------------------------------------------------------------------------

    def findings(self, name: str) -> Findings:
        """What a step found; the anomaly claims of all steps are corrected together."""
        taken = [one.step.name for one in self.evidence.taken if one.run is not None]
        if name not in taken:
            raise UserError(choose("step with a run", name, taken))
        return Findings(self.evidence.findings(name))

    @property
    def conclusion(self) -> ConclusionView:
        """What all of it says, as far as it goes."""
        found = conclude(self.evidence)
        return ConclusionView(**{one.name: getattr(found, one.name) for one in fields(found)})

    @property
    def ledger(self) -> Table:
        """The hypotheses: how much of the extra time each explains, and which are excluded."""
        return entries_table(conclude(self.evidence).ledger)

    @property
    def steps(self) -> Table:
        """The steps so far, in order."""
        rows = [_step(number + 1, taken) for number, taken in enumerate(self.evidence.taken)]
        kinds = styles([("number", "", "", "prose", "", "number", "prose")] * len(rows))
        columns = ("", "step", "part", "why", "run", "seconds", "left out because")
        return Table(columns, rows, kinds)

    def report(self) -> Path:
        """Write ``report.html`` into the folder; returns its path."""
        from perflib.lab.investigation_report import write_investigation

        path = self.folder / "report.html"
        write_investigation(self.evidence, conclude(self.evidence), path)
        return path.absolute()

    def __repr__(self) -> str:
        made = self._made
        taken = sum(one.run is not None for one in self.evidence.taken)
        lines = [f"investigation in {self.folder}: {taken} steps taken"]
        if not made.replayed:
            lines[0] += f", {made.left_s:.0f} s left"
        lines.append(f"  so far: {conclude(self.evidence).headline.plain}")
        return "\n".join(map(visible, lines))


def _say(sentence: str, indent: str = "") -> None:
    rest = indent + "  "
    print(textwrap.fill(lines(sentence), 100, initial_indent=indent, subsequent_indent=rest))


def _legible(why: str) -> str:
    """A rule's sentence without what only an investigation fills in."""
    words = {"cpu": "N", "against": "M", "function": "A function"}
    return re.sub(r"\{(\w+)[^}]*\}", lambda found: words.get(found[1], "…"), why)


def _step(number: int, taken: Taken) -> list[str]:
    step, run = taken.step, taken.run
    seconds = f"{taken.seconds:.0f}" if run is not None else ""
    run_id = run.id if run is not None else ""
    why = step.why
    return [str(number), step.name, PARTS[step.part], why, run_id, seconds, taken.skipped]


# --- how it begins -------------------------------------------------------------------------------


def investigate(
    core: int | None = None,
    against: int | None = None,
    job: str = "",
    begin: str = "",
    end: str = "",
    events: int = 20,
    minutes: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | bool | None = None,
    replay: str | os.PathLike[str] | None = None,
    recorded: str = "",
) -> InvestigationView:
    """Begin an investigation, resume one, or conclude anew from one that is stored.

    Nothing is measured yet, apart from reading what the machine is: ``.next`` says what comes,
    ``.take()`` does it, ``.go()`` all of it.

    Parameters
    ----------
    core, against
        The core that is reported slow, and a healthy one; ``None``: all are compared.
    job, begin, end, events
        A command line in KV's place, the expressions of an event's first and last line, and how
        many events a start of it processes.
    minutes
        The longest that it may take; ``None``: 5, and 8 where there is a cause to be found.
    folder
        Where all is kept; below ``reports`` unless given.
    resume
        The folder of one to resume; ``True``: the newest below ``reports``.
    replay
        The folder of one whose runs are looked up; nothing is measured.
    recorded
        A recorded machine (``pl.recorded()`` lists them): its runs are looked up, and a step whose
        run was not recorded is left out, with the reason.

    Raises
    ------
    UserError
        A value is out of range, or names what is not there.
    """
    minutes = _number("minutes", minutes, 0.1, 1440)
    events = int(_number("events", events, 1, math.inf) or 1)
    asked = Question(core, against, job, begin, end, events, minutes, recorded)
    resume = resume if resume not in (False, "") else None
    replay = replay or None
    if resume is None and replay is None:
        made = Investigation.begin(asked, Path(folder) if folder else None)
        print(f"kept in {made.folder}")
        return InvestigationView(made)
    alone = Question(events=asked.events, minutes=None if replay else minutes)
    if asked != alone or folder or (resume is not None and replay is not None):
        msg = "resume and replay take what was asked from the folder: with resume only minutes "
        raise UserError(msg + "may be given")
    if replay is not None:
        return InvestigationView(Investigation.replay(Path(replay)))
    return InvestigationView(
        Investigation.resume(None if resume is True else Path(str(resume)), minutes)
    )


def _number(name: str, value: Any, least: float, most: float) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        limits = f"at least {least:g}" if math.isinf(most) else f"between {least:g} and {most:g}"
        msg = f"{name}: {value!r}: a number {limits}"
        raise UserError(msg)
    return value


def question(namespace: MutableMapping[str, Any]) -> dict[str, Any]:
    """Validate a notebook's parameters cell; call it with ``globals()`` right after it.

    Returns
    -------
    The arguments of `investigate`. ``preset`` gives ``minutes`` where these are ``None``: 2 for
    ``quick``; ``full`` takes as long as ``perflib investigate`` does.

    Raises
    ------
    UserError
        A name is no parameter, or a preset is none; the nearest one is given.
    """
    known = [name for name in investigate.__annotations__ if name != "return"]
    given_names(namespace, {*known, "preset"})
    preset = namespace.get("preset", "quick")
    if preset not in ("quick", "full"):
        raise UserError(choose("preset", str(preset), ("quick", "full")))
    asked = {name: namespace[name] for name in known if name in namespace}
    stored = asked.get("resume") or asked.get("replay")
    if asked.get("minutes") is None and preset == "quick" and not stored:
        asked["minutes"] = _QUICK_MINUTES
    return asked
