"""An investigation: it chooses runs by the rules, makes them, and can be resumed and replayed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflib import experiments
from perflib.framework import recordings
from perflib.investigation import folder as folders
from perflib.investigation.evidence import Evidence, Part, Question, Step, Taken
from perflib.investigation.fit import examine
from perflib.investigation.rules import NO_TIME, RULES, next_step
from perflib.investigation.signs import evaluate
from perflib.model.errors import MeasurementError, PerflibError, UserError, choose
from perflib.model.run import new_id
from perflib.store import run_files
from perflib.store.files import json_of

if TYPE_CHECKING:
    from perflib.measure.schedule import Progress
    from perflib.model.run import Run

_MINUTES, _MINUTES_WITH_CAUSE = 5.0, 8.0
LOOKING = ("a core is slow", "starts of the job differ")  # with a cause to be found
_ONCE = "it was recorded once, and another step has that run: no run counts twice"
_REPORT_S = 25.0  # kept back for figures and the report


@dataclass
class Investigation:
    """The steps so far, and what comes next.

    Made by ``begin``, ``resume`` or ``replay``. ``next`` says what would be done now; ``take`` does
    it, or another step that a user prefers. All is kept in ``folder``.

    Parameters
    ----------
    evidence
        What is known.
    folder
        Where the plan and the runs are kept.
    spent_s
        The time that it took so far, over all sessions.
    replayed
        Runs are looked up in the folder; nothing is measured or written.
    """

    evidence: Evidence
    folder: Path
    spent_s: float = 0.0
    replayed: bool = False
    tag: str = ""
    finished: bool = False
    _stored: Mapping[str, Mapping[str, Any]] | None = None

    # --- three ways to begin ---------------------------------------------------------------------

    @classmethod
    def begin(cls, question: Question, folder: Path | None = None) -> Investigation:
        """A new one: the machine is examined, nothing is measured yet.

        Raises
        ------
        UserError
            The question names what is not there; or the folder holds an investigation already.
        """
        from perflib.machine.hardware.topology import topology

        begin = time.monotonic()
        if question.recorded:
            machine = recordings.described(question.recorded)
            allowed = {cpu["cpu"] for cpu in machine["cpus"] if cpu["allowed"]}
            here = [sorted(allowed & {*cpu["siblings"]}) for cpu in machine["cpus"]]
            cores = sorted({core[0] for core in here if core})
        else:
            places = topology()
            allowed = set(places.allowed_cpus())
            here = [[cpu for cpu in core if cpu in allowed] for core in places.cores()]
            cores = [core[0] for core in here if core]
        question = question.checked(sorted(allowed))
        _check_job(question)
        tag = new_id("investigation")
        folder = folder or folders.REPORTS / tag.partition("-")[2]
        if (folder / folders.PLAN).exists():
            msg = f"{folder} holds an investigation already: --resume {folder} continues it, "
            msg += f"--replay {folder} concludes anew; or give another --out"
            raise UserError(msg)
        made = cls(Evidence(question, cores), folder, tag=tag)
        made._save()  # a folder that cannot be written fails before anything is measured
        made.evidence.fit = {"machine": machine} if question.recorded else examine()
        made.spent_s = time.monotonic() - begin
        made._save()
        return made

    @classmethod
    def resume(cls, folder: Path | None = None, minutes: float | None = None) -> Investigation:
        """Continue with one that was ended before its plan was, or that may take longer now.

        Parameters
        ----------
        folder
            Its place, or the beginning of its name below ``reports``; the newest unfinished
            one there unless given.
        minutes
            All that it may take, with what it took before; as it was unless given.

        Raises
        ------
        UserError
            There is none, or it was begun on another machine.
        """
        from perflib.machine.describe import describe
        from perflib.machine.identity import check_same_machine

        found = cls._read(folders.find(folder) if folder is not None else _newest_unfinished())
        if found.evidence.fit and not found.evidence.question.recorded:
            there = found.evidence.fit["machine"]
            check_same_machine(there, describe(), f"the investigation in {found.folder}")
        if minutes is not None:
            found.evidence.question = replace(found.evidence.question, minutes=minutes)
        if not found.evidence.fit:
            found.evidence.fit = examine()
        return found

    @classmethod
    def replay(cls, folder: Path) -> Investigation:
        """Derive the steps and conclusions again from stored runs; nothing is measured."""
        folder = folders.find(folder)
        record = folders.read_plan(folder)
        evidence = _evidence(record, folder)
        stored = {step["name"]: step for step in record["steps"]}
        return cls(evidence, folder, replayed=True, _stored=stored)

    @classmethod
    def _read(cls, folder: Path) -> Investigation:
        record = folders.read_plan(folder, to_resume=True)
        evidence = _evidence(record, folder)
        found = cls(evidence, folder, spent_s=record["spent_s"], tag=record["tag"])
        for step in record["steps"]:
            if step["skipped"] != NO_TIME:
                evidence.add(found._taken(step))
        return found

    def _taken(self, record: Mapping[str, Any]) -> Taken:
        run = None
        if record["run"]:
            path = folders.runs_in(self.folder) / f"{record['run']}.parquet"
            run = run_files.load(path if path.is_file() else record["run"])
        return Taken(_step(record), run, record["seconds"], record["skipped"])

    # --- the plan --------------------------------------------------------------------------------

    @property
    def _looked_up(self) -> bool:
        """Whether nothing is measured: neither the time that is left nor this machine matters."""
        return self.replayed or bool(self.evidence.question.recorded)

    @property
    def left_s(self) -> float:
        """The time that is left for measuring."""
        minutes = self.evidence.question.minutes
        if minutes is None:
            looking = any(evaluate(sign, self.evidence) for sign in LOOKING)
            minutes = _MINUTES_WITH_CAUSE if looking else _MINUTES
        report_s = min(_REPORT_S, 6 * minutes)
        return max(0.0, 60 * minutes - self.spent_s - report_s)

    def next(self) -> Step | None:
        """What comes next; steps that cannot be taken are noted as left out on the way."""
        while True:
            if (stored := self._next_stored()) is not None:
                return stored
            found = next_step(self.evidence, self.left_s, replayed=self._looked_up)
            if not isinstance(found, Taken):
                return found
            self.evidence.add(found)
            self._save()

    def proposed(self) -> list[Step]:
        """All steps that the rules propose as things stand; the first of them comes next."""
        found: list[Step] = []
        ahead = replace(self.evidence, taken=[*self.evidence.taken])
        while (step := next_step(ahead, self.left_s, replayed=self._looked_up)) is not None:
            if isinstance(step, Step):
                found.append(step)
            ahead.taken.append(step if isinstance(step, Taken) else Taken(step))
        return found

    def own(
        self,
        experiment: str,
        given: Mapping[str, Any],
        why: str,
        name: str | None = None,
        part: Part = "cause",
    ) -> Step:
        """A step that no rule proposes: the reader's own. It is kept, resumed and replayed, too.

        Parameters
        ----------
        experiment, given
            The run: parameters by name, added to those of the preset ``quick``.
        name
            Of the step; the experiment's unless given.

        Raises
        ------
        UserError
            There is no such experiment, parameter or part; or the name is used already.
        """
        if part not in ("cause", "map"):
            raise UserError(choose("part of an investigation", part, ("cause", "map")))
        wanted = experiments.get(experiment).params(dict(given), "quick")
        used = {rule.name for rule in RULES} | {one.step.name for one in self.evidence.taken}
        if name in used:
            msg = f"name {name!r}: a step of that name is in the plan; give another one"
            raise UserError(msg)
        numbered = (f"{experiment} {number}" for number in count(2))
        chosen = name or next(one for one in chain([experiment], numbered) if one not in used)
        params = wanted.model_dump(mode="json", include={*given, "budget_s"})
        return Step(chosen, part, why, experiment, params, wanted.budget_s)

    def _next_stored(self) -> Step | None:
        """Of a replay: steps come in the order in which they were taken, the reader's own as well.

        What no rule proposes any more is passed over.
        """
        proposed = {step.name: step for step in self.proposed()} if self._stored else {}
        for record in (self._stored or {}).values():
            name = record["name"]
            if self.evidence.step(name) is None and (name in proposed or _is_own(name)):
                return proposed.get(name) or _step(record)
        return None

    def skip(self, step: Step, why: str) -> Taken:
        """Leave a step out, for a reason."""
        taken = Taken(step, skipped=why)
        self.evidence.add(taken)
        self._save()
        return taken

    def take(self, step: Step, progress: Progress | None = None) -> Taken:
        """Make a step's run. One that fails is left out, with its reason; all is kept.

        Raises
        ------
        KeyboardInterrupt
            Nothing of the step is in the plan; ``resume`` continues it.
        """
        if self.replayed:
            taken = self._look_up(step)
        else:
            begin = time.monotonic()
            run, failed = self._measured(step, progress)
            seconds = time.monotonic() - begin
            self.spent_s += seconds
            taken = Taken(step, run, round(seconds, 1), failed)
            if run is not None:
                folders.keep_run(self.folder, run)
        before = time.monotonic()
        self.evidence.add(taken)
        self.spent_s += time.monotonic() - before
        self._save()
        stopped = taken.run.provenance.get("stopped") if taken.run is not None else ""
        if stopped == "interrupted" and not self.replayed:
            raise KeyboardInterrupt
        return taken

    def _measured(self, step: Step, progress: Progress | None) -> tuple[Run | None, str]:
        experiment = experiments.get(step.experiment)
        try:
            params = experiment.params(dict(step.params), "quick")
            if machine := self.evidence.question.recorded:
                run = recordings.recorded(experiment, machine, params)
                once = any(
                    one.run is not None and one.run.id == run.id for one in self.evidence.taken
                )
                return (None, _ONCE) if once else (run, "")
            if _is_own(step.name):  # after the process was killed no rule proposes it again
                return experiment.measure(params, progress, tag=f"{self.tag} own"), ""
            unfinished = self._unfinished(step.experiment)
            if unfinished:
                return experiment.resume(unfinished, progress), ""
            return experiment.measure(params, progress, tag=self.tag), ""
        except PerflibError as error:
            return None, str(error)

    def _unfinished(self, experiment: str) -> str:
        """A run of that experiment that this investigation began, and that was killed."""
        for saved in run_files.runs():
            ended = saved.status == "interrupted" and saved.experiment == experiment
            if ended and _tag_of(saved.id) == self.tag:
                return saved.id
        return ""

    def _look_up(self, step: Step) -> Taken:
        stored = (self._stored or {}).get(step.name)
        if stored is None:
            return Taken(step, skipped="it is not among the stored runs")
        try:
            taken = self._taken(stored)
        except PerflibError as error:  # its file is gone or damaged
            return Taken(step, skipped=str(error))
        made = taken.step  # a reader may have changed its parameters
        step = replace(step, params=made.params, budget_s=made.budget_s)
        return Taken(step, taken.run, taken.seconds, taken.skipped)

    def go(self, notify: Callable[[Step | Taken], Progress | None] | None = None) -> None:
        """Take all steps; ``notify`` gets each before and after it, and returns the progress."""
        while (step := self.next()) is not None:
            progress = notify(step) if notify is not None else None
            taken = self.take(step, progress)
            if notify is not None:
                notify(taken)
        self.finished = True
        self._save()

    def _save(self) -> None:
        if self.replayed:
            return
        steps = [
            {
                **asdict(one.step),
                "run": one.run.id if one.run is not None else None,
                "seconds": one.seconds,
                "skipped": one.skipped,
            }
            for one in self.evidence.taken
        ]
        folders.write_plan(
            self.folder,
            {
                "tag": self.tag,
                "finished": self.finished,
                "question": self.evidence.question.to_dict(),
                "cores": self.evidence.cores,
                "spent_s": round(self.spent_s, 1),
                "fit": self.evidence.fit,
                "steps": steps,
            },
        )


def _is_own(name: str) -> bool:
    """Whether a step is the reader's own: no rule has its name."""
    return all(rule.name != name for rule in RULES)


def _evidence(record: Mapping[str, Any], folder: Path) -> Evidence:
    """What a plan began with: its question and its machine."""
    try:
        question = Question(**record["question"])
        return Evidence(question, [int(cpu) for cpu in record["cores"]], record["fit"])
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{folder / folders.PLAN} is damaged: {error}"
        raise UserError(msg) from error


def _step(record: Mapping[str, Any]) -> Step:
    names = ("name", "part", "why", "experiment", "params", "budget_s")
    return Step(**{name: record[name] for name in names})


def _newest_unfinished() -> Path:
    found = sorted(folders.REPORTS.glob(f"*/{folders.PLAN}"), reverse=True)
    for path in found:
        if not folders.read_plan(path.parent).get("finished"):
            return path.parent
    msg = "no unfinished investigation is below reports/ here: name its folder, --resume FOLDER"
    raise UserError(msg)


def _check_job(question: Question) -> None:
    """A wrong command line or expression fails before anything is measured."""
    if not question.job:
        return
    from perflib.instruments.joblog.jobrun import job_argv

    job_argv(question.job, first=0, events=question.events, seed=1)
    given = {"job": "command", "job_command": question.job}
    given |= {"job_begin": question.begin} if question.begin else {}
    given |= {"job_end": question.end} if question.end else {}
    experiments.get("kv_per_core").params({**given, "events": question.events}, "quick")


def _tag_of(run_id: str) -> str:
    """What an unfinished run is marked with."""
    try:
        with (run_files.runs_dir() / f"{run_id}.journal").open(encoding="utf-8") as file:
            return str(json_of(file.readline()).get("tag", ""))
    except (OSError, ValueError, AttributeError) as error:
        msg = f"the journal of run {run_id} cannot be read: {error}"
        raise MeasurementError(msg) from error
