"""A user's own function, swept over the distance of two of its arrays, in one line."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perflib.experiments.aliasing.offsets.analyse import curves, offset_findings
from perflib.experiments.aliasing.offsets.arguments import check_arrays, check_offsets
from perflib.experiments.aliasing.offsets.functions import Swept
from perflib.experiments.aliasing.offsets.source import CFunction, portable
from perflib.experiments.aliasing.offsets.sweeper import Sweeper
from perflib.experiments.aliasing.offsets.table import OffsetTable
from perflib.experiments.aliasing.offsets.trials import TRIAL, calls_for, visiting
from perflib.kernels import build
from perflib.machine.hardware.topology import topology
from perflib.machine.libraries.blas import ONE_THREAD
from perflib.machine.scratch import scratch
from perflib.measure.conditions import Conditions
from perflib.measure.journal import Journal
from perflib.measure.process import Served, Worker
from perflib.measure.schedule import Columns, frame_of, take_rounds
from perflib.model.errors import MeasurementError, UserError
from perflib.model.escape import lines
from perflib.model.finding import Finding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST_ROUNDS = 8
_MOST_OTHERS, _OTHERS_NS = 0.02, 50_000
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class OffsetSweep:
    """What a sweep gave.

    Parameters
    ----------
    name
        The function's.
    samples
        One row a sample: ``round``, ``offset_bytes``, ``calls``, ``time_ns``, ``start_ns``,
        ``first_address``, ``second_address``, ``core_mhz``, ``others_ns``, ``ok``, and the columns
        of a sample between probes.
    threshold_percent
        From where on an offset counts as slow.
    stopped
        ``precise enough``, ``budget spent``, ``interrupted`` or ``failed``.
    problems
        Conditions that are not in force, rounds that failed, samples that are not used, in words.
    provenance
        The conditions requested and observed.
    """

    name: str
    samples: pd.DataFrame
    threshold_percent: float
    stopped: str
    problems: list[str] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> OffsetTable:
        """The samples as log times, with curve, extremes and differences."""
        return OffsetTable(self.samples)

    def curve(self) -> pd.DataFrame:
        """Time a call at each offset; see ``OffsetTable.curve``."""
        return self.table.curve()

    def findings(self) -> list[Finding]:
        """Do the predicted offsets cost time, and does any?"""
        return offset_findings(Swept(self.name), self.table, self.threshold_percent)

    def figure(self) -> Figure:
        """Time against offset, with intervals."""
        from perflib.experiments.aliasing.offsets.figures import time_figure

        return time_figure(curves([(Swept(self.name), self.table)]))

    def __repr__(self) -> str:
        count = len(set(self.samples["round"]))
        shown = [f"<OffsetSweep of {self.name}: {count} rounds, {self.stopped}>"]
        return lines("\n".join([*shown, *map(str, self.findings()), *self.problems]))


def sweep_offsets(
    function: Callable[..., Any] | str | CFunction,
    *arguments: Any,
    move: int | None = None,
    offsets: Iterable[int] | None = None,
    budget_s: float = 10.0,
    precision_percent: float = 0.5,
    threshold_percent: float = 2.0,
    sample_ms: float = 1.0,
    cpu: int | None = None,
    environment: Mapping[str, str] | None = None,
    seed: int = 1,
    timeout_s: float = 60.0,
) -> OffsetSweep:
    """Time a function at many distances of the array that it writes to from the one that it reads.

    It runs in a process of its own, on one core, with copies of the arrays. In each round all
    offsets are visited, in random order; the arrays are mapped anew for each round. The first
    array, and all others but the one that moves, begin at a page, as large allocations do.

    Parameters
    ----------
    function
        A Python function (of a module, or of a notebook: then its source is handed over, with the
        modules, functions and plain values that it uses), ``"module:function"``, a function of a
        cffi library, or ``(path of a library, symbol, declaration in C)``. A call from Python costs
        a tenth to half of a microsecond: a function should take long compared with it.
    arguments
        As the function takes them, in order: numpy arrays, numbers and text. Arrays are copied,
        yours stay as they are.
    move
        Which argument moves, counted from 0: the array that is written to. By default the last
        array.
    offsets
        In bytes; by default just above multiples of 4096, where aliasing is predicted, and far from
        them at the same places in a cache line.
    budget_s, precision_percent
        It ends when the half-width of what the predicted offsets cost (or where none is predicted,
        of the difference of the outer offsets) is below that, in percentage points, after eight
        rounds or more; or when the time is spent.
    threshold_percent
        From where on an offset counts as slow.
    sample_ms
        How long each offset is timed in a round, in samples of 0.25 ms; one call at least.
    cpu
        The core; by default the first that may be used.
    environment
        More variables for the process. Libraries are set to use one thread (``ONE_THREAD``).
    seed
        Of the order of the offsets.
    timeout_s
        A sweep that takes longer is given up.

    Raises
    ------
    UserError
        The function or an argument cannot be swept, or the function raised an exception.
    MeasurementError
        The function crashed or took too long at the first trial, or three times in a row; else
        that costs its round.

    Examples
    --------
    >>> a, out = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    >>> swept = sweep_offsets(np.copyto, out, a, move=0)  # doctest: +SKIP
    >>> swept.curve()  # doctest: +SKIP
    """
    for name, value in (
        ("budget_s", budget_s), ("precision_percent", precision_percent),
        ("threshold_percent", threshold_percent), ("sample_ms", sample_ms),
        ("timeout_s", timeout_s),
    ):  # fmt: skip
        if not 0 < value < math.inf:
            msg = f"{name} must be more than 0, and finite, not {value!r}"
            raise UserError(msg)
    swept = sweeper(function, arguments, move)
    places = check_offsets(offsets, arguments[swept.moves])
    core = topology().allowed_cpus()[0] if cpu is None else cpu
    conditions = Conditions(cpu=core, environment={**ONE_THREAD, **(environment or {})})
    name = swept.function["name"]
    with scratch() as folder:
        journal = Journal.create(folder / "sweep.journal", {})
        with closing(journal), Worker(Served(name, swept), conditions) as worker:

            def timed(order: Sequence[int], warm_calls: int, calls: int) -> Columns:
                answer, _ = worker.call("sweep", order, warm_calls, calls, timeout_s=timeout_s)
                if "raised" in answer:
                    msg = f"the function raised {answer['raised']}"
                    raise UserError(msg)
                return dict(answer)

            calls, warm_calls, visits = calls_for(timed(TRIAL, 1, 1)["time_ns"], sample_ms)

            def trial(round_: int, _: int) -> Columns:
                return timed(visiting(f"{seed}/{round_}", places, visits), warm_calls, calls)

            stopped = take_rounds(
                journal, 1, trial, seed=seed, budget_s=budget_s, least_s=0.0,
                target=precision_percent, half_width=_half_width,
            )  # fmt: skip
    samples = frame_of(journal.trials)
    failed = [one["failed"] for one in journal.trials if "failed" in one]
    if samples.empty:
        raise MeasurementError(failed[-1]) if failed else KeyboardInterrupt
    problems = [*worker.violated, *dict.fromkeys(failed)]
    _mark_usable(samples, problems)
    provenance = {"requested": asdict(conditions), "obtained": worker.obtained}
    return OffsetSweep(name, samples, threshold_percent, stopped, problems, provenance)


def sweeper(function: Any, arguments: Sequence[Any], move: int | None) -> Sweeper:
    """What the worker gets, checked."""
    stays, moves = check_arrays(arguments, move)
    kernel = build("alias_offsets")
    return Sweeper(
        function=portable(function, arguments),
        arguments=[_handed_over(place, one) for place, one in enumerate(arguments)],
        read_only=[
            place
            for place, one in enumerate(arguments)
            if isinstance(one, np.ndarray) and not one.flags.writeable
        ],
        stays=stays,
        moves=moves,
        kernel=(str(kernel.library), str(kernel.module)),
        path=sys.path,
    )


def _handed_over(place: int, value: Any) -> Any:
    """An argument as another process can have it."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, _PLAIN):
        msg = (
            f"argument {place} is {type(value).__name__}, which cannot be handed to another "
            "process: numpy arrays, numbers, text, true, false and None can"
        )
        raise UserError(msg)
    return value


def _mark_usable(samples: pd.DataFrame, problems: list[str]) -> None:
    """Add the column ``ok``; why samples are not usable is a problem.

    Raises
    ------
    MeasurementError
        None is usable.
    """
    others = np.maximum(samples["time_ns"] * _MOST_OTHERS, _OTHERS_NS)
    alone = samples["others_ns"] <= others
    samples["ok"] = alone & samples.pop("pinned")
    if not alone.all():
        problems.append(
            f"in {100 * (1 - alone.mean()):.0f} % of the samples other threads of the process took "
            "time: they are not used. A library that has threads and does not obey its environment "
            "must be set to use one by its own function"
        )
    if not samples["ok"].any():
        msg = f"no sample is usable: {'; '.join(problems) or 'the process was not pinned'}"
        raise MeasurementError(msg)


def _half_width(samples: pd.DataFrame) -> float:
    if samples["round"].nunique() < _LEAST_ROUNDS:
        return math.inf
    table = OffsetTable(samples)
    width = table.predicted().half_width
    if not math.isfinite(width):
        width = table.difference(int(table.offsets[0]), int(table.offsets[-1])).half_width
    return width if math.isfinite(width) else math.inf
