"""A user's own function, swept over the distance of two of its arrays, in one line."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perflib.experiments.aliasing.offsets.analyse import offset_findings
from perflib.experiments.aliasing.offsets.arguments import check_arrays, check_offsets
from perflib.experiments.aliasing.offsets.process import SweepProcess
from perflib.experiments.aliasing.offsets.source import CFunction, portable
from perflib.experiments.aliasing.offsets.table import PERIOD_BYTES, OffsetTable
from perflib.kernels import build
from perflib.machine.hardware.topology import topology
from perflib.machine.libraries.blas import ONE_THREAD
from perflib.measure.conditions import Conditions
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

__all__ = ["OffsetSweep", "sweep_offsets"]

_VISITS = 5
_LEAST_ROUNDS = 8
_CHECKS_GROW = 1.15
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
        ``first_address``, ``second_address``, ``core_mhz``, ``others_ns``, ``ok``.
    threshold_percent
        From where on an offset counts as slow.
    stopped
        ``precise enough``, ``budget spent`` or ``interrupted``.
    problems
        Conditions that are not in force, and samples that are not used, in words.
    provenance
        The conditions asked for and got.
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
        return offset_findings(self.name, self.table, self.threshold_percent)

    def figure(self) -> Figure:
        """Time against offset, with intervals."""
        from perflib.experiments.aliasing.offsets.figures import one_curve

        return one_curve(self.name, self.table)

    def __repr__(self) -> str:
        count = len(set(self.samples["round"]))
        lines = [f"<OffsetSweep of {self.name}: {count} rounds, {self.stopped}>"]
        return "\n".join([*lines, *map(str, self.findings()), *self.problems])


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
    array, and all others but the moved one, begin at a page, as large allocations do.

    Parameters
    ----------
    function
        A Python function (of a module, or of a notebook: then its source is handed over, with the
        modules, functions and plain values that it uses), ``"module:function"``, a function of a
        cffi library, or ``(path of a library, symbol, declaration in C)``. A call from Python costs
        a tenth to half of a microsecond: a function should take long beside it.
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
        How long each offset is timed in a round, in five samples.
    cpu
        The core; by default the first that may be used.
    environment
        More variables for the process. Libraries are told to use one thread (``ONE_THREAD``).
    seed
        Of the order of the offsets.
    timeout_s
        A sweep that takes longer is given up.

    Raises
    ------
    UserError
        The function or an argument cannot be swept, or the function raised an exception.
    MeasurementError
        The function crashed, or took too long.

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
    stays, moves = check_arrays(arguments, move)
    places = check_offsets(offsets, arguments[moves])
    arrays = {i: one for i, one in enumerate(arguments) if isinstance(one, np.ndarray)}
    kernel = build("alias_offsets")
    job: dict[str, Any] = {
        "function": portable(function, arguments),
        "plain": {i: _plain(i, one) for i, one in enumerate(arguments) if i not in arrays},
        "read_only": [place for place, array in arrays.items() if not array.flags.writeable],
        "stays": stays,
        "moves": moves,
        "sample_ns": sample_ms * 1e6 / _VISITS,
        "kernel": [str(kernel.library), str(kernel.module)],
        "path": sys.path,
    }
    core = topology().allowed_cpus()[0] if cpu is None else cpu
    conditions = Conditions(cpu=core, environment={**ONE_THREAD, **(environment or {})})
    with SweepProcess(job, arrays, conditions) as process:
        rows, stopped = _rounds(process, places, budget_s, precision_percent, seed, timeout_s)
        provenance = {"asked": asdict(conditions), "got": process.got}
        problems = list(process.unmet)
    samples = pd.DataFrame(rows)
    others = np.maximum(samples["time_ns"] * _MOST_OTHERS, _OTHERS_NS)
    alone = samples["others_ns"] <= others
    if not alone.all():
        share = 100 * (1 - float(alone.mean()))
        problems.append(
            f"in {share:.0f} % of the samples other threads of the process took time: they are not "
            "used. A library that has threads and does not obey its environment must be told to "
            "use one by its own function"
        )
    samples["ok"] = alone & samples.pop("pinned")
    if not samples["ok"].any():
        msg = f"no sample is usable: {'; '.join(problems) or 'the process was not pinned'}"
        raise MeasurementError(msg)
    return OffsetSweep(
        _name(function, job["function"]), samples, threshold_percent, stopped, problems, provenance
    )


def _rounds(
    process: SweepProcess,
    offsets: list[int],
    budget_s: float,
    precision_percent: float,
    seed: int,
    timeout_s: float,
) -> tuple[list[dict[str, Any]], str]:
    """Rounds until it is enough; an interruption keeps those that there are."""
    rows: list[dict[str, Any]] = []
    begin, round_, next_check = time.monotonic(), 0, float(_LEAST_ROUNDS)
    try:
        while True:
            draw = random.Random(f"{seed}/{round_}")
            order = [place for _ in range(_VISITS) for place in draw.sample(offsets, len(offsets))]
            rows += [{"round": round_, **row} for row in process.sweep(order, timeout_s)]
            round_ += 1
            if time.monotonic() - begin >= budget_s:
                return rows, "budget spent"
            if round_ >= next_check:
                if _half_width(pd.DataFrame(rows)) <= precision_percent:
                    return rows, "precise enough"
                next_check = round_ * _CHECKS_GROW
    except KeyboardInterrupt:
        if not rows:
            raise
        return rows, "interrupted"


def _half_width(samples: pd.DataFrame) -> float:
    table = OffsetTable(samples)
    width = table.predicted(PERIOD_BYTES).half_width
    if not math.isfinite(width):
        width = table.difference(int(table.offsets[0]), int(table.offsets[-1])).half_width
    return width if math.isfinite(width) else math.inf


def _plain(place: int, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, _PLAIN):
        msg = (
            f"argument {place} is {type(value).__name__}, which cannot be handed to another "
            "process: numpy arrays, numbers, text, true, false and None can"
        )
        raise UserError(msg)
    return value


def _name(function: Any, described: Mapping[str, Any]) -> str:
    """One word for the function."""
    known: str = described.get("symbol") or described["name"].rpartition(".")[2]
    return str(getattr(function, "__name__", known)) if described["kind"] != "c" else known
