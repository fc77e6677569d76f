"""blocks placed in memory, encoded in every layout, verified.

The kernels have one interface (``kernels_c/common/erasure_blocks.h``): ours, ISA-L's, Jerasure's.
"""

from __future__ import annotations

import errno
import math
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.aliasing.erasure_coding import ErasureCodingParams
from perflib.experiments.aliasing.erasure_coding.layouts import (
    IMPLEMENTATIONS,
    OURS,
    PAGE_BYTES,
    REFERENCE,
    Code,
    Configuration,
    layout_offsets,
)
from perflib.experiments.aliasing.erasure_coding.table import ErasureTable
from perflib.framework.brackets import bracket_columns
from perflib.framework.experiment import Session
from perflib.framework.results import results
from perflib.kernels import build, record
from perflib.machine.hardware.memory import free_bytes
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker, WorkerError
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError, UserError

_MIB = 1 << 20
_TIMEOUT_S = 120.0
# Shorter than the segments in which a sibling works, longer than the probes (8 microseconds). The
# first encoding, by which slices are made, may take twice as long as later ones.
_SLICE_NS = 400_000


def plan(params: ErasureCodingParams) -> dict[str, Any]:
    """The cores, where there is memory enough for the blocks."""
    cores = params.resolved_cores()
    code, free = params.code, free_bytes()
    needed = code.blocks * code.block_bytes
    if free is not None and needed > free / 2:
        msg = (
            f"block_mib: {code.blocks} blocks of {params.block_mib:g} MiB are "
            f"{needed / _MIB:.0f} MiB, and {free / _MIB:.0f} MiB are free, of which half is "
            f"used at most: give {free / 2 / code.blocks / _MIB:.0f} at most"
        )
        raise UserError(msg)
    return {"cores": cores}


def pilot(params: ErasureCodingParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Which implementations there are, each verified, and how often each encodes in a sample."""
    conditions = params.conditions(plan["cores"][0])
    examined, absent = examine(
        params.implementations, params.code, params.seed, params.trial_ms, conditions
    )
    if not examined:
        msg = f"none of the implementations is available here: {'; '.join(reasons(absent))}"
        raise MeasurementError(msg)
    return {"implementations": examined, "absent": absent}


def take(params: ErasureCodingParams, session: Session) -> str:
    """Every implementation on every core once a round, in every layout."""
    plan = session.plan
    conditions = [params.conditions(cpu) for cpu in plan["cores"]]
    configurations = [
        Configuration(core, name)
        for core in range(len(plan["cores"]))
        for name in plan["implementations"]
    ]
    with ErasureTrials(
        params.code,
        list(dict.fromkeys(params.layouts)),
        plan["implementations"],
        conditions,
        configurations,
        params.seed,
    ) as trials:
        stopped = session.rounds(
            params,
            len(configurations),
            trials.take,
            lambda samples: ErasureTable(samples).half_width,
        )
        session.note(trials)
    session.problems += reasons(plan["absent"])
    return stopped


# --- calls of a kernel ---------------------------------------------------------------------------


def _call(worker: Worker, function: str, *arguments: Any) -> list[NDArray[Any]]:
    answer, outputs = worker.call(function, *arguments, timeout_s=_TIMEOUT_S)
    if answer:
        msg = f"{function}() of kernel {worker.target.name!r} fails: {os.strerror(int(answer))}"
        raise _RefusedError(msg, int(answer))
    return outputs


class _RefusedError(WorkerError):
    """A kernel says that it cannot; ``number`` is its errno."""

    def __init__(self, msg: str, number: int) -> None:
        super().__init__(msg)
        self.number = number


def _open(worker: Worker, method: int, code: Code) -> None:
    _call(worker, "erasure_open", method, code.data, code.parity, code.block_bytes)


def _lay(worker: Worker, layout: str, code: Code, seed: int) -> bool:
    """Lay and fill the blocks; do they begin where they should?"""
    offsets = np.array(layout_offsets(layout, code.data, code.parity), dtype=np.uint64)
    (addresses,) = _call(worker, "erasure_lay", offsets, seed, Out("u8", code.blocks))
    return bool(((addresses - offsets) % PAGE_BYTES == 0).all())


def _encode(
    worker: Worker, warm: int, repeats: int, slices: int, code: Code
) -> tuple[Any, NDArray[Any]]:
    """The kernel's record of all, and one of each slice: a block is encoded in so many."""
    built, most = worker.target, repeats * slices
    done, timed = _call(
        worker, "erasure_encode", warm, repeats, -(-code.block_bytes // slices),
        Out(record(built, "erasure_sample"), 1), Out(record(built, "erasure_slice"), most), most,
    )  # fmt: skip
    return done[0], timed[: int(done[0]["slices"])]


def _checksums(worker: Worker, code: Code) -> list[int]:
    found: list[int] = _call(worker, "erasure_checksums", Out("u8", code.blocks))[0].tolist()
    return found


# --- what can be measured, and is it right? ------------------------------------------------------


def _losses(code: Code, seed: int) -> list[list[int]]:
    """As many blocks as may be lost: the first, the last, and some at random; ascending."""
    most, blocks = code.parity, range(code.blocks)
    drawn = random.Random(seed).sample(blocks, most)
    return [list(blocks[:most]), list(blocks[-most:]), sorted(drawn)]


def _parity_by_tables(matrix: NDArray[Any], code: Code, seed: int, conditions: Conditions) -> int:
    """Checksum of the parity that our portable code makes by somebody's matrix."""
    with Worker(build(OURS), conditions) as worker:
        _open(worker, 0, code)
        _call(worker, "erasure_use_matrix", matrix)
        _lay(worker, REFERENCE, code, seed)
        return int(_encode(worker, 0, 1, 1, code)[0]["parity_checksum"])


def _examine(
    name: str, code: Code, seed: int, trial_ms: float, conditions: Conditions
) -> dict[str, Any]:
    chosen = IMPLEMENTATIONS[name]
    with Worker(build(chosen.kernel), conditions) as worker:
        _open(worker, chosen.method, code)
        _lay(worker, REFERENCE, code, seed)
        first, timed = _encode(worker, 1, 1, 1, code)
        whole = _checksums(worker, code)
        for lost in _losses(code, seed):
            _call(worker, "erasure_decode", np.array(lost, dtype=np.int32), len(lost))
            if _checksums(worker, code) != whole:
                msg = f"blocks {lost} were lost, and it decodes them wrongly"
                raise MeasurementError(msg)
        matrix: NDArray[Any] | None = None
        try:
            (matrix,) = _call(worker, "erasure_matrix", Out("u1", code.data * code.parity))
        except _RefusedError as refused:
            if refused.number != errno.ENOTSUP:
                raise
    if matrix is not None:
        wanted = _parity_by_tables(matrix, code, seed, conditions)
        if wanted != int(first["parity_checksum"]):
            msg = "its parity is not that of its matrix, as our portable code multiplies it"
            raise MeasurementError(msg)
    time_ns = max(1, int(timed["timed"]["time_ns"][0]))
    return {
        "repeats": max(1, math.ceil(1e6 * trial_ms / time_ns)),
        "slices": min(max(1, round(time_ns / _SLICE_NS)), code.block_bytes // PAGE_BYTES),
        "parity_checksum": int(first["parity_checksum"]),
        "matrix": None if matrix is None else matrix.tobytes().hex(),
    }


def _why_not(name: str, error: MeasurementError) -> str:
    chosen = IMPLEMENTATIONS[name]
    if isinstance(error, _RefusedError) and error.number == errno.ENOTSUP:
        return "this processor has no AVX2"
    lacks_library = any(words in str(error) for words in ("No such file", "cannot find -l"))
    if chosen.library and (lacks_library or "cannot open shared object" in str(error)):
        return f"{chosen.library} is not installed: {chosen.package}"
    return str(error)


def examine(
    names: Sequence[str], code: Code, seed: int, trial_ms: float, conditions: Conditions
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Which implementations can be had here, each verified: it decodes, and its parity is right.

    Parity is compared with that of our portable code with the implementation's own matrix; one
    whose matrix is of bits is verified by its decoding alone.

    Parameters
    ----------
    names
        Of ``IMPLEMENTATIONS``.
    seed
        Of the blocks' content.
    trial_ms
        How long a sample is to be timed at least.
    conditions
        Of the process that tries it.

    Returns
    -------
    By name: ``repeats`` (encodings a trial), ``slices`` (of each), ``parity_checksum`` and
    ``matrix`` (in hexadecimal digits; ``None``: of bits). And why the others cannot be had.
    """
    found: dict[str, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            found[name] = _examine(name, code, seed, trial_ms, conditions)
        except MeasurementError as error:
            absent[name] = _why_not(name, error)
    return found, absent


def reasons(absent: Mapping[str, str]) -> list[str]:
    """A sentence for each reason, with all that it keeps from being measured."""
    by_reason: dict[str, list[str]] = {}
    for name, why in absent.items():
        by_reason.setdefault(why, []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]


# --- trials ---------------------------------------------------------------------------------------


class ErasureTrials(Workers):
    """A worker for each kernel on each core; the layouts follow each other in the same memory.

    A trial maps its memory anew, so that where its pages are widens the interval, and measures all
    layouts there, in random order, so that it makes no difference between them.
    """

    def __init__(
        self,
        code: Code,
        layouts: Sequence[str],
        examined: Mapping[str, Mapping[str, Any]],
        conditions: Sequence[Conditions],
        configurations: Sequence[Configuration],
        seed: int,
    ) -> None:
        self._kernels = list(dict.fromkeys(IMPLEMENTATIONS[name].kernel for name in examined))
        super().__init__([build(kernel) for kernel in self._kernels], conditions)
        self._code = code
        self._layouts = layouts
        self._examined = examined
        self._conditions = conditions
        self._configurations = configurations
        self._seed = seed

    def take(self, round_: int, configuration: int) -> Columns:
        """All slices of each layout."""
        wanted = self._configurations[configuration]
        chosen = IMPLEMENTATIONS[wanted.implementation]
        before = self._kernels.index(chosen.kernel) * len(self._conditions)
        worker = self[before + wanted.core]
        layouts = list(self._layouts)
        random.Random(f"{self._seed}/{round_}/{configuration}").shuffle(layouts)
        _open(worker, chosen.method, self._code)
        parts = [self._samples(worker, wanted, layout) for layout in layouts]
        _call(worker, "erasure_close")
        columns = {name: [one for part in parts for one in part[name]] for name in parts[0]}
        return columns | results(columns.pop("expected"), columns.pop("found"))

    def _samples(self, worker: Worker, wanted: Configuration, layout: str) -> Columns:
        cpu = self._conditions[wanted.core].cpu
        examined = self._examined[wanted.implementation]
        placed = _lay(worker, layout, self._code, self._seed)
        # One that is long by itself is warm for most of its time.
        repeats = int(examined["repeats"])
        done, slices = _encode(
            worker, int(repeats > 1), repeats, int(examined["slices"]), self._code
        )
        expected, found = examined["parity_checksum"], int(done["parity_checksum"])
        right = found == expected
        here = int(done["cpu"]) == cpu
        if not placed:
            self.problems[f"blocks did not begin where layout {layout!r} has them"] = None
        if not here:
            self.problems[f"in some trials the thread was migrated away from cpu{cpu}"] = None
        if not right:
            self.problems[
                f"cpu{cpu} made other parity by {wanted.implementation} than at first: a core or "
                "memory that is broken is the likeliest cause"
            ] = None
        common = {
            "cpu": cpu,
            "implementation": wanted.implementation,
            "layout": layout,
            "involuntary_switches": int(done["involuntary_switches"]),
            "ok": placed and here and right,
            "expected": expected,
            "found": found,
        }
        timed = slices["timed"]
        return {
            **{name: [value] * len(slices) for name, value in common.items()},
            "start_ns": timed["start_ns"].tolist(),
            "time_ns": timed["time_ns"].tolist(),
            "data_bytes": slices["data_bytes"].tolist(),
            **bracket_columns(timed),
        }
