"""What an investigation knows so far: its question, the machine's fitness, runs and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from perflib.model.errors import PerflibError, UserError

if TYPE_CHECKING:
    from perflib.model.finding import Finding
    from perflib.model.run import Run
    from perflib.stats.decide import Verdict

Part = Literal["fit", "symptom", "cause", "map"]
PARTS: Mapping[Part, str] = {
    "fit": "Fit to measure?",
    "symptom": "Symptom",
    "cause": "Cause",
    "map": "Map",
}


@dataclass(frozen=True)
class Question:
    """The question.

    Parameters
    ----------
    core, against
        The core that is reported slow, and a healthy one; ``None``: all are compared.
    job, begin, end
        A command line in KV's place, and the expressions of an event's first and last line.
    events
        How many events a start of that job is to process.
    minutes
        All that it may take; ``None``: 5, and 8 where there is a cause to be found.
    recorded
        A recorded machine, whose runs are looked up in place of measuring; empty: this machine.
    """

    core: int | None = None
    against: int | None = None
    job: str = ""
    begin: str = ""
    end: str = ""
    events: int = 20
    minutes: float | None = None
    recorded: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    def checked(self, cores: list[int]) -> Question:
        """The same; with ``core`` and no ``against``, against the nearest other core.

        Raises
        ------
        UserError
            There is no such core here, the two are one, or an option needs another one.
        """
        listed = ", ".join(map(str, cores))
        for name, cpu in (("--core", self.core), ("--against", self.against)):
            if cpu is not None and cpu not in cores:
                msg = f"{name} {cpu}: the cores that may be used here are {listed}"
                raise UserError(msg)
        if self.against is not None and self.core is None:
            msg = f"--against {self.against} says which core is healthy: --core says which is slow"
            raise UserError(msg)
        if self.core is not None and self.core == self.against:
            msg = f"--core {self.core} and --against {self.against} are one core: name two"
            raise UserError(msg)
        if (self.begin or self.end) and not self.job:
            msg = "--begin and --end mark where the events of a --job begin and end: there is none"
            raise UserError(msg)
        if self.core is None or self.against is not None:
            return self
        others = [cpu for cpu in cores if cpu != self.core]
        if not others:
            msg = f"--core {self.core}: there is no other core here to compare it with"
            raise UserError(msg)
        nearest = min(others, key=lambda cpu: (abs(cpu - (self.core or 0)), cpu))
        return Question(**{**self.to_dict(), "against": nearest})


@dataclass(frozen=True)
class Step:
    """One run that was chosen, and why.

    ``name`` is its rule's; ``budget_s`` is in ``params``, too.
    """

    name: str
    part: Part
    why: str
    experiment: str
    params: Mapping[str, Any]
    budget_s: float

    @property
    def command(self) -> str:
        """The same run by hand."""
        given = " ".join(f"-p {name}={_word(value)}" for name, value in self.params.items())
        return f"perflib run {self.experiment} --preset quick {given}"


def _word(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"'{text}'" if set(text) & set(' ;$&|<>(){}*?"\\#') else text


@dataclass
class Taken:
    """A step that was taken, or left out: ``skipped`` says why."""

    step: Step
    run: Run | None = None
    seconds: float = 0.0
    skipped: str = ""


@dataclass
class Evidence:
    """All that is known so far.

    Parameters
    ----------
    cores
        The cores that are compared, one of each physical core.
    fit
        The result of ``perflib.investigation.fit.examine``.
    taken
        The steps so far, in order.
    """

    question: Question
    cores: list[int]
    fit: dict[str, Any] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    _findings: list[list[Finding]] = field(default_factory=list, repr=False)
    _analysed: dict[str, list[Finding]] = field(default_factory=dict, repr=False)

    def add(self, taken: Taken) -> None:
        """Take note of a step; the anomaly claims of all runs so far are corrected together."""
        from perflib import experiments
        from perflib.investigation.correction import corrected

        run = taken.run
        if run is not None:
            try:
                found = experiments.get(run.experiment).analyse(run)
            except PerflibError as error:  # its samples do not suffice
                taken.run = None
                taken.skipped = f"run {run.id} says nothing: {error}"
            else:
                self._analysed[taken.step.name] = found
                self._findings = corrected(list(self._analysed.values()))
        self.taken.append(taken)

    def findings(self, name: str) -> list[Finding]:
        """What the step of that name found; nothing if it was not taken."""
        if name not in self._analysed:
            return []
        return self._findings[list(self._analysed).index(name)]

    def find(
        self, name: str, claim: str, verdict: Verdict | None = None, **about: Any
    ) -> list[Finding]:
        """Those of a claim, of a verdict, about something."""
        return [
            finding
            for finding in self.findings(name)
            if finding.of.name == claim
            and verdict in (None, finding.verdict)
            and all(finding.about.get(key) == value for key, value in about.items())
        ]

    def step(self, name: str) -> Taken | None:
        """The step of that name, taken or left out."""
        return next((one for one in self.taken if one.step.name == name), None)

    def run(self, name: str) -> Run | None:
        """The run of that step."""
        step = self.step(name)
        return step.run if step is not None else None

    @property
    def entries(self) -> list[tuple[Run, list[Finding]]]:
        """Each run with what it found, corrected."""
        return [
            (one.run, self.findings(one.step.name)) for one in self.taken if one.run is not None
        ]

    def others(self, cpu: int) -> list[int]:
        """The cores that a core is compared with."""
        if self.question.core is not None and self.question.against is not None:
            pair = [self.question.core, self.question.against]
            return [one for one in pair if one != cpu]
        return [one for one in self.cores if one != cpu]

    @property
    def compared(self) -> list[int]:
        """The cores that the symptom is looked for on."""
        question = self.question
        if question.core is not None and question.against is not None:
            return [question.against, question.core]
        return self.cores
