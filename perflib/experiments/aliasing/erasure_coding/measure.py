"""One turn of erasure coding: blocks laid in memory, encoded in every layout, verified.

The kernels have one interface (``kernels_c/common/erasure_blocks.h``): ours, ISA-L's, Jerasure's.
"""

from __future__ import annotations

import errno
import math
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perflib.kernels import build
from perflib.measure.conditions import Conditions
from perflib.measure.process import Out, Worker, WorkerError
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError

__all__ = [
    "IMPLEMENTATIONS",
    "LAYOUTS",
    "REFERENCE",
    "Arm",
    "Code",
    "ErasureTurns",
    "examine",
    "layout_offsets",
    "reasons",
]

PAGE_BYTES, LINE_BYTES = 4096, 64
REFERENCE = "staggered"
LAYOUTS = ("aligned", REFERENCE, "chasing", "moved")
_MOVED_BYTES = 2048
_OURS = "erasure_coding"
_TIMEOUT_S = 120.0
_SAMPLE = np.dtype(
    [
        ("begin_ns", "i8"), ("time_ns", "i8"), ("data_bytes", "i8"), ("parity_checksum", "u8"),
        ("involuntary_switches", "i8"), ("cpu", "i8"),
    ]
)  # fmt: skip


class Implementation(NamedTuple):
    """A kernel, which of its methods, and what to install where it does not compile."""

    kernel: str
    method: int
    library: str = ""
    package: str = ""


_ISAL = ("ISA-L", "'apt-get install libisal-dev' (Debian, Ubuntu)")
_JERASURE = ("Jerasure", "'apt-get install libjerasure-dev' (Debian, Ubuntu)")
IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "ours_table": Implementation(_OURS, 0),
    "ours_simd": Implementation(_OURS, 1),
    "isal": Implementation("erasure_isal", 0, *_ISAL),
    "isal_avx2": Implementation("erasure_isal", 1, *_ISAL),
    "jerasure_vandermonde": Implementation("erasure_jerasure", 0, *_JERASURE),
    "jerasure_cauchy": Implementation("erasure_jerasure", 1, *_JERASURE),
}


class Code(NamedTuple):
    """What is encoded: so many blocks of data, so many of parity, of so many bytes."""

    data: int
    parity: int
    block_bytes: int

    @property
    def blocks(self) -> int:
        """All of them."""
        return self.data + self.parity


class Arm(NamedTuple):
    """What one turn measures, in every layout: ``core`` counts the run's cores from 0."""

    core: int
    implementation: str


# --- where the blocks begin ----------------------------------------------------------------------


def layout_offsets(layout: str, data: int, parity: int) -> list[int]:
    """Where each block begins, in bytes after the beginning of a page; data first.

    ``aligned``: at the page, all of them. ``staggered``: evenly spread over a page, so that no two
    agree in the low 12 bits of their addresses; parity lowest, so that a block's load is far from
    following a store to the same low bits. ``chasing``: the data as in ``staggered``, but each
    block of parity one cache line ahead of a block of data, whose next load then agrees in its low
    12 bits with a store just made. ``moved``: as ``staggered``, all moved by half a page.

    >>> layout_offsets("staggered", 2, 2)
    [2048, 3072, 0, 1024]
    >>> layout_offsets("chasing", 2, 2)
    [2048, 3072, 2112, 3136]
    """
    if layout == "aligned":
        return [0] * (data + parity)
    room = PAGE_BYTES // (data + parity)
    step = room // LINE_BYTES * LINE_BYTES or (32 if room >= 32 else 16)
    of_data = [step * (parity + i) for i in range(data)]
    if layout == "chasing":
        ahead = [of_data[i % data] + LINE_BYTES * (1 + i // data) for i in range(parity)]
        return of_data + [offset % PAGE_BYTES for offset in ahead]
    moved = _MOVED_BYTES if layout == "moved" else 0
    return [moved + offset for offset in (*of_data, *(step * i for i in range(parity)))]


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


def _encode(worker: Worker, warm: int, repeats: int) -> Any:
    return _call(worker, "erasure_encode", warm, repeats, Out(_SAMPLE, 1))[0][0]


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
    with Worker(build(_OURS), conditions) as worker:
        _open(worker, 0, code)
        _call(worker, "erasure_use_matrix", matrix)
        _lay(worker, REFERENCE, code, seed)
        return int(_encode(worker, 0, 1)["parity_checksum"])


def _examine(
    name: str, code: Code, seed: int, turn_ms: float, conditions: Conditions
) -> dict[str, Any]:
    chosen = IMPLEMENTATIONS[name]
    with Worker(build(chosen.kernel), conditions) as worker:
        _open(worker, chosen.method, code)
        _lay(worker, REFERENCE, code, seed)
        first = _encode(worker, 1, 1)
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
    return {
        "repeats": max(1, math.ceil(1e6 * turn_ms / max(1, int(first["time_ns"])))),
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
    names: Sequence[str], code: Code, seed: int, turn_ms: float, conditions: Conditions
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Which implementations can be had here, each verified: it decodes, and its parity is right.

    Parity is held against that of our portable code with the implementation's own matrix; one whose
    matrix is of bits is verified by its decoding alone.

    Parameters
    ----------
    names
        Of ``IMPLEMENTATIONS``.
    seed
        Of the blocks' content.
    turn_ms
        How long a sample is to be timed at least.
    conditions
        Of the process that tries it.

    Returns
    -------
    By name: ``repeats`` (encodings a sample), ``parity_checksum`` and ``matrix`` (in hexadecimal
    digits; ``None``: of bits). And why the others cannot be had.
    """
    found: dict[str, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            found[name] = _examine(name, code, seed, turn_ms, conditions)
        except MeasurementError as error:
            absent[name] = _why_not(name, error)
    return found, absent


def reasons(absent: Mapping[str, str]) -> list[str]:
    """A sentence for each reason, with all that it keeps from being measured."""
    by_reason: dict[str, list[str]] = {}
    for name, why in absent.items():
        by_reason.setdefault(why, []).append(name)
    return [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]


# --- turns ---------------------------------------------------------------------------------------


class ErasureTurns(Workers):
    """A worker for each kernel on each core; the layouts take turns in the same memory.

    A turn maps its memory anew, so that the luck of where its pages lie is scatter, and measures
    all layouts there, in random order, so that it is none between them.
    """

    def __init__(
        self,
        code: Code,
        layouts: Sequence[str],
        examined: Mapping[str, Mapping[str, Any]],
        conditions: Sequence[Conditions],
        arms: Sequence[Arm],
        seed: int,
    ) -> None:
        self._kernels = list(dict.fromkeys(IMPLEMENTATIONS[name].kernel for name in examined))
        super().__init__([build(kernel) for kernel in self._kernels], conditions)
        self._code = code
        self._layouts = layouts
        self._examined = examined
        self._conditions = conditions
        self._arms = arms
        self._seed = seed

    def take(self, round_: int, arm: int) -> Columns:
        """One sample of each layout."""
        wanted = self._arms[arm]
        chosen = IMPLEMENTATIONS[wanted.implementation]
        before = self._kernels.index(chosen.kernel) * len(self._conditions)
        worker = self[before + wanted.core]
        layouts = list(self._layouts)
        random.Random(f"{self._seed}/{round_}/{arm}").shuffle(layouts)
        _open(worker, chosen.method, self._code)
        rows = [self._sample(worker, wanted, layout) for layout in layouts]
        _call(worker, "erasure_close")
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _sample(self, worker: Worker, arm: Arm, layout: str) -> dict[str, Any]:
        cpu = self._conditions[arm.core].cpu
        examined = self._examined[arm.implementation]
        placed = _lay(worker, layout, self._code, self._seed)
        # One that is long by itself is warm for most of its time.
        done = _encode(worker, int(examined["repeats"] > 1), examined["repeats"])
        right = int(done["parity_checksum"]) == examined["parity_checksum"]
        here = int(done["cpu"]) == cpu
        if not placed:
            self.problems[f"blocks did not begin where layout {layout!r} has them"] = None
        if not here:
            self.problems[f"in some turns the thread was moved away from cpu{cpu}"] = None
        if not right:
            self.problems[
                f"cpu{cpu} made other parity by {arm.implementation} than at first: a core or "
                "memory that is broken is the likeliest cause"
            ] = None
        return {
            "cpu": cpu,
            "implementation": arm.implementation,
            "layout": layout,
            "start_ns": int(done["begin_ns"]),
            "time_ns": int(done["time_ns"]),
            "data_bytes": int(done["data_bytes"]),
            "involuntary_switches": int(done["involuntary_switches"]),
            "ok": placed and here and right,
        }
