"""What ``import perflib as pl`` gives to a notebook: experiments to run, runs to inspect.

Nothing heavy is imported until it is used. An `ExperimentView` measures; a `RunView` is a run that
knows its experiment: its findings, its derived tables, its figures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from perflib.framework import configured
from perflib.framework.experiment import Experiment
from perflib.framework.params import Params
from perflib.model.errors import UserError, choose
from perflib.model.escape import lines, visible
from perflib.model.extras import installed
from perflib.model.finding import Finding
from perflib.model.run import Run, recording_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from perflib.lab.form import Form
    from perflib.lab.tables import Table


class Findings(list[Finding]):
    """Findings, shown as a table; ``findings["cpu8"]`` is the one about that subject."""

    @overload
    def __getitem__(self, key: SupportsIndex) -> Finding: ...
    @overload
    def __getitem__(self, key: slice) -> list[Finding]: ...
    @overload
    def __getitem__(self, key: str) -> Finding: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> Finding | list[Finding]:
        """By position, or by subject."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        for finding in self:
            if finding.subject == key:
                return finding
        raise UserError(choose("subject", key, (finding.subject for finding in self)))

    def where(self, **about: Any) -> Findings:
        """Those whose claim (``claim="slower"``) or structured subject (``cpu=8``) is this."""
        return Findings(
            finding
            for finding in self
            if all(
                {"claim": finding.of.name, **finding.about}.get(key) == value
                for key, value in about.items()
            )
        )

    def frame(self) -> pd.DataFrame:
        """One row a finding, as data."""
        import pandas as pd

        return pd.DataFrame([finding.to_dict() for finding in self])

    def summary(self) -> Sentences:
        """What is so, in a few plain sentences."""
        from perflib.lab.summary import summary

        return Sentences(summary(self))

    def _table(self) -> Table:
        from perflib.lab.tables import verdicts

        return verdicts(self)

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def __repr__(self) -> str:
        return repr(self._table())


class Sentences(list[str]):
    """Sentences, one a line where they are shown."""

    def __repr__(self) -> str:
        return "\n".join(map(visible, self))


@dataclass(repr=False)
class RunView(Run):
    """A run that knows its experiment. It is made by `ExperimentView.run` and `load`."""

    @cached_property
    def _experiment(self) -> Experiment:
        from perflib.experiments import get

        return get(self.experiment)

    @cached_property
    def findings(self) -> Findings:
        """What the samples say."""
        return Findings(self._experiment.analyse(self))

    def summary(self) -> Sentences:
        """What is so, in a few plain sentences."""
        return self.findings.summary()

    @cached_property
    def _tables(self) -> dict[str, Callable[[], pd.DataFrame]]:
        return self._experiment.derived(self)

    @cached_property
    def _plots(self) -> dict[str, Callable[[], Figure]]:
        return self._experiment.drawings(self)

    @property
    def tables(self) -> list[str]:
        """The names of its derived tables."""
        return list(self._tables)

    @property
    def plots(self) -> list[str]:
        """The names of its figures."""
        return list(self._plots)

    def table(self, name: str) -> pd.DataFrame:
        """A derived table.

        Raises
        ------
        UserError
            There is no such table; the nearest name is given.
        """
        if name not in self._tables:
            raise UserError(choose("table", name, self._tables))
        return self._tables[name]()

    def plot(self, name: str) -> Figure:
        """A figure, drawn from the table of the same name.

        Raises
        ------
        UserError
            There is no such figure; the nearest name is given.
        """
        if name not in self._plots:
            raise UserError(choose("plot", name, self._plots))
        with installed():
            from perflib.lab.theme import themed

        with themed():
            return self._plots[name]()

    def published(self) -> pd.DataFrame | None:
        """What others measured, for comparison."""
        return self._experiment.published()


def bound(run: Run) -> RunView:
    """A run as a notebook has it."""
    return RunView(**{field.name: getattr(run, field.name) for field in fields(Run)})


class ExperimentView:
    """One experiment: its question, its parameters, and ways to run it."""

    def __init__(self, described: Experiment) -> None:
        self._experiment = described
        self.name = described.name
        self.title = described.title
        self.question = described.question
        self.presets = list(configured.presets(described))

    def __repr__(self) -> str:
        notebook = f"notebooks/{self._experiment.notebook}.ipynb"
        lines = [f"{self.name}: {self.question}", f"  notebook: {notebook}"]
        lines.append(f"  presets: {', '.join(self.presets)}")
        lines.append("  parameters:")
        own = self._experiment.Params.model_fields.keys() - Params.model_fields.keys()
        for entry in configured.documentation(self._experiment)["parameters"]:
            if entry["name"] in own:
                value = f"{entry['name']} = {entry['default']!r} {entry['unit']}".rstrip()
                lines.append(f"    {value}: {entry['help']}")
        lines.append(f"  conditions: {', '.join(Params.model_fields)}")
        return "\n".join(lines)

    def parameters_table(self) -> Table:
        """Its own parameters and, below them, the conditions that all experiments share."""
        from perflib.lab.tables import table

        entries = self._experiment.documentation()["parameters"]
        entries.sort(key=lambda entry: entry["name"] in Params.model_fields)
        return table(
            {key: entry[key] for key in ("name", "type", "unit", "help")} for entry in entries
        )

    def parameters(self, namespace: MutableMapping[str, Any]) -> Params:
        """Validate a notebook's parameters cell; to be called with ``globals()`` right after it.

        See `perflib.lab.notebook.parameters`.
        """
        from perflib.lab.notebook import parameters

        return parameters(self._experiment, namespace)

    def params(
        self,
        params: Params | None = None,
        *,
        preset: str | None = None,
        conditions: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Params:
        """The parameters of a run: those of a preset or of ``params``, changed by what is given."""
        changed = {**(conditions or {}), **given}
        if params is not None:
            changed = {**params.model_dump(exclude_unset=True), **changed}
        return configured.params(self._experiment, changed, preset)

    def changed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Of a run's parameters the experiment's own that differ from their defaults."""
        wanted = self._experiment.current_params(params).model_dump(mode="json")
        usual = self._experiment.Params.make({}).model_dump(mode="json")
        return {
            name: value
            for name, value in wanted.items()
            if name not in Params.model_fields and value != usual[name]
        }

    def run(
        self,
        params: Params | None = None,
        *,
        preset: str | None = None,
        conditions: Mapping[str, Any] | None = None,
        tag: str | None = None,
        recorded: str = "",
        **given: Any,
    ) -> RunView:
        """Measure, with progress shown; an interruption keeps what there is.

        Parameters
        ----------
        params
            From ``parameters``, or none.
        preset
            ``quick`` or ``full``.
        conditions
            Those that all experiments share (cores, budget_s, aslr ...), by name.
        tag
            What the run is marked with; by it a batch finds its runs. ``PERFLIB_TAG`` in the
            environment, if it is not given.
        recorded
            A recorded machine (``pl.recorded()`` lists them), or a folder of runs with a ``/`` in
            its path: its run with the parameters that are named here is given, and nothing is
            measured.
        given
            Parameters by name.

        Raises
        ------
        UserError
            A parameter is wrong, or no such run was recorded; nothing was measured.
        MeasurementError
            The measurement failed; what was measured is kept.
        """
        from perflib.measure.progress import Reporter

        wanted = self.params(params, preset=preset, conditions=conditions, **given)
        tag = os.environ.get("PERFLIB_TAG", "") if tag is None else tag
        if recorded:
            from perflib.framework import recordings

            given_run = bound(
                recordings.recorded(self._experiment, recorded, wanted, tag, named_only=True)
            )
            print(f"nothing is measured: recorded on {recording_of(given_run)}")
            return given_run
        with Reporter(self.title) as progress:
            measured = self._experiment.measure(wanted, progress, tag=tag)
        print(f"saved as run {measured.id} (stopped: {measured.provenance['stopped']})")
        for problem in measured.provenance["problems"]:
            print(lines(f"on the way: {problem}"))
        return bound(measured)

    def analyse(self, samples: pd.DataFrame, id_: str = "table", **given: Any) -> RunView:
        """A table of samples, measured here or anywhere, as a run: findings, tables and figures.

        Parameters
        ----------
        samples
            With the columns that the experiment requires (``perflib list NAME``).
        id_
            What the run is called; it is not saved.
        given
            Parameters by name: thresholds.

        Raises
        ------
        UserError
            A column is missing or holds no numbers, or a parameter is wrong.
        """
        samples = self._experiment.check_samples(samples)
        return bound(Run(id_, self.name, self.params(**given).model_dump(mode="json"), samples))

    def form(self) -> Form:
        """The experiment as a form: fields, run, live plot, stop, save."""
        with installed():
            from perflib.lab.form import Form

        return Form(self.name, bound)

    def published(self) -> pd.DataFrame | None:
        """What others measured."""
        return self._experiment.published()


def experiment(name: str) -> ExperimentView:
    """The experiment of that name.

    Raises
    ------
    UserError
        There is none; the nearest name is given.
    """
    from perflib.experiments import get

    return ExperimentView(get(name))


def recorded(machine: str = "") -> pd.DataFrame:
    """The recorded runs, one a row: machine, experiment, its changed parameters, processor, day.

    Parameters
    ----------
    machine
        One recorded machine's name, or the path of a folder of runs; all of perflib's own
        otherwise.

    Raises
    ------
    UserError
        There is no such machine.
    """
    import pandas as pd

    from perflib.framework import recordings

    chosen = [machine] if machine else list(recordings.machines())
    return pd.DataFrame(
        [
            {
                "machine": one.machine,
                "experiment": one.experiment,
                "parameters": experiment(one.experiment).changed(one.params),
                "tag": one.provenance.get("tag", ""),
                "processor": one.provenance["machine"]["processor"],
                "start": one.provenance["start"],
                "title": one.title,
            }
            for name in chosen
            for one in recordings.recordings(name)
        ]
    )


def load(run: str | Path) -> RunView:
    """A saved run, by its identifier, an unambiguous beginning of it, or the path of its file."""
    from perflib.store import run_files

    return bound(run_files.load(run))


def runs() -> pd.DataFrame:
    """The saved, interrupted and damaged runs, oldest first, one a row."""
    import pandas as pd

    from perflib.store import run_files

    return pd.DataFrame([vars(entry) for entry in run_files.runs()])


def compare(first: Run, second: Run) -> Findings:
    """How what was found in the second run differs from the first.

    Raises
    ------
    UserError
        They are runs of different experiments.
    """
    from perflib.experiments import get

    if first.experiment != second.experiment:
        msg = f"{first.id} is a run of {first.experiment}, {second.id} one of {second.experiment}: "
        msg += "not comparable"
        raise UserError(msg)
    return Findings(get(first.experiment).compare(first, second))


def report(runs: Sequence[Run], path: str | Path) -> Path:
    """Write one self-contained HTML file about some runs; returns its path."""
    with installed():
        from perflib.lab.report import write_report

    write_report(runs, Path(path))
    return Path(path).absolute()


def ledger(found: Iterable[Run | Finding]) -> Table:
    """What explains the extra time, and what does not: of runs, or of findings."""
    from perflib.lab.ledger import ledger as table

    return table(found)
