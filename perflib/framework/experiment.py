"""What an experiment is, and the one way in which every interface runs it.

An experiment is a folder. Its ``__init__`` declares what it is (parameters, columns, claims) and
imports nothing heavy; ``about.toml`` has what a reader sees of it (title, question, tables,
figures) and its presets; its modules do the work, by names that are the same in every folder:

``measure``
    ``plan(params)``, ``pilot(params, plan)`` where the plan needs one, ``take(params, session)``.
``analyse``
    ``findings(run)``, ``tables(run)``; ``compare(first, second)`` and ``levels(run)`` where the
    ones of this module do not fit.
``figures``
    ``plots(run)``: how each figure is drawn, by name; the table of that name holds its data.

Their types are in `perflib.framework.steps`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import platform
import sys
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from perflib.framework.params import Params as AnyParams
from perflib.framework.params import describe_fields
from perflib.framework.results import CORE_WRONG, CORES_WRONG
from perflib.framework.schema import Column, checked, too_few_values
from perflib.model.claims import CHANGED
from perflib.model.errors import MeasurementError, UserError, choose
from perflib.model.extras import installed
from perflib.model.run import recording_of, recordings_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from perflib.framework.steps import Drawing, Plots, Steps, Tables
    from perflib.measure.journal import Journal
    from perflib.measure.schedule import Columns, Progress
    from perflib.model.claim import Claim
    from perflib.model.finding import Finding
    from perflib.model.run import Run

_PROCESSORS, _LINE_BYTES = ("x86_64", "aarch64"), 64  # what kernels_c is written for
_MIN_S = 16.0  # a decision to stop early needs several batches
_RECORDED = ("numpy", "pandas", "scipy", "cffi", "duckdb")


class Recorded(Protocol):
    """What runs under conditions: a kernel's workers, or jobs."""

    @property
    def violated(self) -> list[str]:
        """A sentence for each condition that is not in force."""

    def provenance(self) -> dict[str, Any]:
        """What runs, and the conditions requested and obtained."""


@dataclass
class Session:
    """What a measurement is given: where its trials go, who watches, and what it notes."""

    journal: Journal
    progress: Progress | None = None
    stop: threading.Event | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def plan(self) -> dict[str, Any]:
        """What was decided when the run began, so that it resumes in the same way."""
        plan: dict[str, Any] = self.journal.header["plan"]
        return plan

    def rounds(
        self,
        params: AnyParams,
        configurations: int,
        trial: Callable[[int, int], Columns],
        half_width: Callable[[pd.DataFrame], float],
        least_s: float = _MIN_S,
    ) -> str:
        """``take_rounds`` as the parameters say, into the journal; ``least_s``: not less."""
        from perflib.measure.schedule import take_rounds

        def width(samples: pd.DataFrame) -> float:
            try:
                return half_width(samples)
            except UserError:  # no sample is usable so far; whatever it is, the analysis says it
                return math.inf

        return take_rounds(
            self.journal,
            configurations,
            trial,
            seed=params.seed,
            budget_s=params.budget_s,
            least_s=min(least_s, params.budget_s),
            target=params.precision_percent,
            half_width=width,
            progress=self.progress,
            stop=self.stop,
        )

    def note(self, workers: Recorded) -> None:
        """Record what the workers run and have; what they lack is a problem of the run."""
        self.provenance.update(workers.provenance())
        self.problems += workers.violated


class Experiment:
    """A question, its parameters, how it is measured, analysed and drawn."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    notebook: ClassVar[str]
    Params: ClassVar[type[AnyParams]]
    columns: ClassVar[tuple[Column, ...]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    claims: ClassVar[tuple[Claim, ...]]
    tables: ClassVar[Mapping[str, str]]  # what each derived table holds
    plots: ClassVar[Mapping[str, str]]  # what each figure shows
    hypotheses: ClassVar[tuple[str, ...]] = ()  # those on which it gives a verdict
    placed_by_line: ClassVar[bool] = False  # its kernel places data by cache lines of 64 bytes
    live_rounds: ClassVar[int] = 3  # complete ones, before a figure of a running measurement shows
    published_table: ClassVar[str] = ""  # what others measured, to compare with
    # Columns in which equal work agrees, where results are compared (`perflib.framework.wrong`).
    same_work: ClassVar[tuple[str, ...] | None] = None
    # Columns and parameters that were called otherwise in runs of an earlier schema.
    renamed: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, about: str = "") -> None:
        """Take title, question, tables, plots and presets from ``about.toml``.

        ``about``: the path of the Python file next to it, ``__file__``. The tables of what this
        derives from follow its own.
        """
        if about:
            text = Path(about).with_name("about.toml").read_text(encoding="utf-8")
            for name, value in tomllib.loads(text).items():
                more = getattr(cls, name, {}) if isinstance(value, dict) else {}
                setattr(cls, name, value | more if more else value)

    # --- what each experiment's modules do ------------------------------------------------------

    def _steps(self) -> Steps[Any]:
        """Its modules ``measure`` and ``analyse``, imported when they are needed."""
        raise NotImplementedError

    def _figures(self) -> Drawing:
        """Its module ``figures``, imported when it is needed."""
        raise NotImplementedError

    def plan(self, params: Any) -> dict[str, Any]:
        """Decide what stays the same when the run is resumed; nothing is measured.

        Raises
        ------
        UserError
            This machine cannot do what the parameters ask for.
        """
        if not params.settings:  # what is missing may be what a setting brings
            self._check_available()
        return self._steps().measure.plan(params)

    def _check_available(self) -> None:
        if reason := self.unavailable():
            raise UserError(reason)

    def pilot(self, params: Any, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Measure what the plan still lacks, with the journal open and all settings in force."""
        pilot = self._steps().pilot
        return {} if pilot is None else pilot(params, plan)

    def take(self, params: Any, session: Session) -> str:
        """Measure into ``session.journal``; returns why it ended."""
        return self._steps().measure.take(params, session)

    def analyse(self, run: Run) -> list[Finding]:
        """What the samples say, wrong results first; no verdict where times hardly vary."""
        from perflib.framework import wrong

        run = self.current(run)
        found = wrong.findings(run, self.columns, self.same_work)
        try:
            found += self._steps().analyse.findings(run)
        except UserError:  # no sample is left that is right
            if not found:
                raise
        if note := recording_of(run):
            found = [dataclasses.replace(one, recorded=note) for one in found]
        hardly_varies = too_few_values(run.samples, self.columns)
        if hardly_varies is None:
            return found
        return [one if one.of.counted else one.prevented(hardly_varies) for one in found]

    def levels(self, run: Run) -> pd.DataFrame:
        """How slow each core was in each setting, as numbers that machines can be compared by.

        Returns
        -------
        Columns ``cpu`` (-1: of no core), ``setting``, ``value`` (positive, larger is slower) and
        ``unit``; see `perflib.framework.levels`.

        Raises
        ------
        UserError
            A parameter or a value of the samples is not what it should be.
        """
        from perflib.framework.levels import levels

        run = self.current(run)
        of_experiment = self._steps().levels
        return of_experiment(run) if of_experiment else levels(run.samples, self.columns)

    def derived(self, run: Run) -> Tables:
        """How each table of a run is made, by name."""
        return self._steps().analyse.tables(self.current(run))

    def drawings(self, run: Run) -> Plots:
        """How each figure of a run is drawn, by name; each with units, uncertainty and legend.

        Names stand in it as they are: see `perflib.framework.plots.drawn`.
        """
        with installed():
            from perflib.framework.plots import drawn, recorded_mark

            figures = self._figures()
        plots = figures.plots(_drawable(self.current(run)))
        mark = recorded_mark(run.provenance)
        return {name: functools.partial(drawn, draw, mark) for name, draw in plots.items()}

    def figures(self, run: Run) -> dict[str, Figure]:
        """All figures, drawn."""
        return {name: draw() for name, draw in self.drawings(run).items()}

    def system_settings(self, params: Any, plan: Mapping[str, Any]) -> Mapping[str, str]:
        """What is set on the machine while it is measured, and put back.

        What was requested, and the huge pages of a backing that reserves them.
        """
        from perflib.measure.pages.backings import with_pool

        return with_pool(params.settings, plan.get("backings", ()), plan.get("hugetlb_pages", 0))

    def unavailable(self) -> str:
        """Why this machine cannot measure it at all, and what to do; empty where it can."""
        here = platform.machine()
        if here not in _PROCESSORS:
            return f"perflib's kernels are written for x86-64 and aarch64, and this is {here}"
        from perflib.machine.hardware.caches import caches

        line_bytes = max((one.line_bytes or 0 for one in caches()), default=0)
        if self.placed_by_line and line_bytes > _LINE_BYTES:
            return (
                f"{self.name} places its data by cache lines of {_LINE_BYTES} bytes, and this "
                f"processor's have {line_bytes}"
            )
        return ""

    def published(self) -> pd.DataFrame | None:
        """What others measured, to compare with."""
        from perflib.framework.published import published

        return published(self.published_table) if self.published_table else None

    def compare(self, first: Run, second: Run) -> list[Finding]:
        """How what was found in the second run differs from the first."""
        from perflib.model.changes import changes

        if compare := self._steps().compare:
            compared = compare(self.current(first), self.current(second))
        else:
            compared = changes(self.analyse(first), self.analyse(second))
        note = recordings_of((first, second))
        return [dataclasses.replace(one, recorded=note) for one in compared]

    # --- the way every interface goes -----------------------------------------------------------

    def params(self, given: Mapping[str, Any], preset: str | None = None) -> AnyParams:
        """The parameters of a preset (``quick``, ``full``), changed by what is given."""
        if preset is not None and preset not in self.presets:
            raise UserError(choose("preset", preset, self.presets))
        return self.Params.make({**(self.presets[preset] if preset else {}), **given})

    def current(self, run: Run) -> Run:
        """A run as the analysis takes it: today's names, all parameters, checked samples.

        Samples that are wrong are not used.

        Raises
        ------
        UserError
            A parameter or a value of the samples is not what it should be.
        """
        from perflib.framework.wrong import marked

        return dataclasses.replace(
            run,
            params=self.current_params(run.params).model_dump(mode="json"),
            samples=marked(self.check_samples(run.samples), self.columns, self.same_work),
        )

    def current_params(self, params: Mapping[str, Any]) -> AnyParams:
        """A run's parameters by today's names, with all that it lacks.

        Raises
        ------
        UserError
            One is not what it should be.
        """
        return self.Params.make({self.renamed.get(key, key): params[key] for key in params})

    def measure(
        self,
        params: AnyParams,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
        tag: str = "",
    ) -> Run:
        """Measure, save, and return the run.

        Every trial goes to a journal first. The journal is removed when the run is saved; a run
        that was killed is finished with ``resume``.

        Raises
        ------
        UserError
            A parameter is wrong for this machine; nothing was measured.
        MeasurementError
            The measurement failed; what was measured is saved and named in the message.
        """
        from perflib.machine.describe import describe
        from perflib.measure.journal import Journal
        from perflib.model.run import new_id
        from perflib.store.run_files import runs_dir

        plan = self.plan(params)
        run_id = new_id(self.name)
        header = {
            "id": run_id,
            "experiment": self.name,
            "params": params.model_dump(mode="json"),
            "plan": plan,
            "start": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "tag": tag,
            "machine": describe(),
        }
        journal = Journal.create(runs_dir() / f"{run_id}.journal", header)
        return self._finish(params, Session(journal, progress, stop))

    def resume(
        self,
        run_id: str,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
    ) -> Run:
        """Resume a run whose process was killed, on the same machine."""
        from perflib.machine.describe import describe
        from perflib.machine.identity import check_same_machine
        from perflib.measure.journal import Journal
        from perflib.store.run_files import runs_dir

        journal = Journal.reopen(runs_dir() / f"{run_id}.journal")
        try:
            check_same_machine(journal.header["machine"], describe(), f"run {run_id}")
            params = self.current_params(journal.header["params"])
        except BaseException:
            journal.close()
            raise
        return self._finish(params, Session(journal, progress, stop))

    def _finish(self, params: AnyParams, session: Session) -> Run:
        from perflib.machine.settings.changes import settings
        from perflib.store.run_files import save

        journal = session.journal
        try:
            with settings(self.system_settings(params, session.plan)) as changed:
                session.problems += changed.notes  # what a killed process had left changed
                if params.settings:
                    self._check_available()
                if not journal.piloted:
                    journal.add_to_plan(self.pilot(params, session.plan))
                stopped = self.take(params, session)
            run = self._run(journal.header, session, stopped)
            run.provenance["settings_changed"] = changed.changes
            try:
                save(run)
            except MeasurementError as error:
                msg = (
                    f"{error}. All {len(journal.trials)} trials are kept: make room, or make it "
                    f"writable, then 'perflib run --resume {run.id}'"
                )
                raise MeasurementError(msg) from error
        except BaseException:
            journal.close(remove=not any("columns" in trial for trial in journal.trials))
            raise
        journal.close(remove=True)
        self._save_with_findings(run)
        if stopped == "failed":
            last = journal.trials[-1]["failed"]
            msg = f"{last}\nWhat was measured before is saved as run {run.id}"
            raise MeasurementError(msg)
        return run

    def reported(self, run: Run) -> dict[str, str]:
        """What the analysis reports of a run, as its file carries it (`perflib.store.reported`).

        Raises
        ------
        UserError
            A parameter or a value of the samples is not what it should be.
        """
        from perflib.framework.levels import levels_table
        from perflib.store.reported import reported

        found, levels = self.analyse(run), levels_table([])
        with contextlib.suppress(UserError):  # of a run all of whose results are wrong
            levels = self.levels(run)
        return reported(found, levels)

    def _save_with_findings(self, run: Run) -> None:
        """Save a run again, with what its analysis reports.

        The run is saved already: whatever becomes of the analysis, or of whom it takes too long,
        costs nothing that was measured.
        """
        from perflib.model.recorded import without_user
        from perflib.store.run_files import save

        try:
            reported = self.reported(run)
        except Exception as error:  # noqa: BLE001 an analysis may fail in any way
            why = str(error).partition("\n")[0] or type(error).__name__
            why = without_user(f"its analysis failed: {why}")
            remark = f"the run is saved without findings: {why}"
            run.provenance["remarks"] = [*run.provenance.get("remarks", []), remark]
            reported = {}
        with contextlib.suppress(MeasurementError, UserError):  # a disk that is full since then
            save(run, reported=reported)

    def _run(self, header: dict[str, Any], session: Session, stopped: str) -> Run:
        from importlib.metadata import version

        from perflib.framework.siblings import with_siblings
        from perflib.measure.schedule import frame_of
        from perflib.model.recorded import without_user
        from perflib.model.run import Run

        trials = session.journal.trials
        failed = [trial["failed"] for trial in trials if "failed" in trial]
        samples, unknown = with_siblings(frame_of(trials))
        session.problems = list(dict.fromkeys([*session.problems, *failed, *unknown]))
        provenance = {
            "machine": header["machine"],
            "plan": header["plan"],
            "tag": header["tag"],
            "start": header["start"],
            "end": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "measured_s": round(sum(trial["wall_s"] for trial in trials), 3),
            "trials": len(trials),
            "failed_trials": len(failed),
            "stopped": stopped,
            "problems": session.problems,
            "versions": {
                "perflib": version("perflib-jupyter"),
                "python": platform.python_version(),
                "implementation": sys.implementation.name,
                **{package: version(package) for package in _RECORDED},
            },
            **session.provenance,
        }
        if samples.empty:
            why = session.problems[-1] if session.problems else f"the run was {stopped}"
            msg = f"nothing was measured: {why}"
            raise MeasurementError(msg)
        samples, provenance = without_user(samples), without_user(provenance)
        return Run(header["id"], self.name, header["params"], samples, provenance)

    def check_samples(self, samples: pd.DataFrame) -> pd.DataFrame:
        """A table, whoever brings it, as ``analyse`` takes it; see `perflib.framework.schema`.

        Raises
        ------
        UserError
            A column is missing, or a value is not what its column holds.
        """
        return checked(samples, self.columns, self.name, self.renamed)

    def documentation(self) -> dict[str, Any]:
        """The experiment as data: for ``perflib list``, the reference, the form and the report."""
        wrong = () if self.same_work is None else (CORE_WRONG, CORES_WRONG)
        return {
            "name": self.name,
            "title": self.title,
            "question": self.question,
            "notebook": self.notebook,
            "parameters": describe_fields(self.Params),
            "presets": {name: dict(values) for name, values in self.presets.items()},
            "columns": [column.documentation() for column in self.columns],
            "claims": [claim.documentation() for claim in (*self.claims, *wrong, CHANGED)],
            "tables": dict(self.tables),
            "plots": dict(self.plots),
        }


def _drawable(run: Run) -> Run:
    """A run with all its texts as a figure may have them: what no font has is written out."""
    from perflib.model.escape import visible
    from perflib.model.recorded import change_texts

    parts = ("params", "samples", "provenance")
    return dataclasses.replace(
        run, **{part: change_texts(getattr(run, part), visible) for part in parts}
    )
