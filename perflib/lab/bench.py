"""Python code between probes: two functions in rounds, or marked pieces of any program.

Unlike every other measurement this one runs in the calling process: only there are the functions.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from perflib.experiments.bracketed import Bracketed, BracketedParams
from perflib.framework.brackets import bracket_columns
from perflib.lab.interface import RunView, bound
from perflib.model.errors import UserError

if TYPE_CHECKING:
    from perflib.framework.experiment import Session
    from perflib.kernels import Kernel
    from perflib.measure.schedule import Columns

_SAMPLE_S = 0.0006  # of one sample: short next to what a neighbour does
_ALIKE = 4  # times as fast, at most: called equally often
_PLACES = 64  # of a function's code, before one is used again
_TRIAL_S = 0.05  # of rounds that go to the journal together
_GC_OFF = "Python's garbage collector was off while functions were timed"


@functools.cache
def _kernel() -> Kernel:
    from perflib.kernels import load

    return load("bracketed")


class Taken:
    """Samples as they come, one after the other."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, str, int, int, bytes]] = []
        self._turn = 0  # no turns are known
        self._moved: deque[object] = deque(maxlen=_PLACES)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, name: str, calls: int, record: Any) -> None:
        """Keep the record of a sample that has just ended."""
        kernel = _kernel()
        raw = bytes(kernel.ffi.buffer(record))
        self._rows.append((self._turn, name, calls, kernel.lib.bracketed_cpu(), raw))

    def turns(self, pieces: Sequence[Piece], order: random.Random, seconds: float) -> None:
        """Take one turn after the other for so long: each piece once, in random order."""
        for piece in pieces:
            piece.move()
            self._moved.append(piece.call)  # so that the next one is not where this one was
        end = time.monotonic() + seconds
        while True:
            self._turn += 1
            for piece in order.sample(pieces, len(pieces)):
                piece.sample(self)
            if time.monotonic() >= end:
                return

    def columns(self) -> Columns:
        """The columns of ``bracketed``; what was taken is forgotten."""
        import numpy as np

        from perflib.kernels import record

        rows, self._rows = self._rows, []
        raw = b"".join(row[-1] for row in rows)
        brackets = np.frombuffer(raw, dtype=record(_kernel().build, "bracket"))
        return {
            "process": [os.getpid()] * len(rows),
            **({"turn": [row[0] for row in rows]} if self._turn else {}),
            "name": [row[1] for row in rows],
            "calls": [row[2] for row in rows],
            "cpu": [row[3] for row in rows],
            "start_ns": brackets["start_ns"].tolist(),
            "time_ns": brackets["time_ns"].tolist(),
            **bracket_columns(brackets),
        }


@dataclass
class Piece:
    """A function to time: its name, and how it is called, ``calls`` times a sample."""

    name: str
    call: Callable[[], object]
    calls: int = 1

    def calibrate(self) -> None:
        """Call it more and more often, until a sample takes long enough."""
        self.call()
        while (took_s := self._timed()) < _SAMPLE_S / 2:
            self.calls = max(2 * self.calls, min(round(_SAMPLE_S / took_s), 100 * self.calls))

    def _timed(self) -> float:
        """The least of three: what interrupts one must not make its samples short."""
        found = []
        for _ in range(3):
            begun = time.perf_counter()
            self._repeat()
            found.append(time.perf_counter() - begun)
        return max(min(found), 1e-9)

    def _repeat(self) -> None:
        call = self.call
        for _ in itertools.repeat(None, self.calls):
            call()

    def move(self) -> None:
        """Put the function's code at another place, where what it will find there is warm."""
        self.call = elsewhere(self.call)
        self._repeat()

    def sample(self, taken: Taken) -> None:
        """Take one sample."""
        kernel = _kernel()
        record = kernel.ffi.new("bracket *")
        kernel.lib.bracketed_begin(record)
        self._repeat()
        kernel.lib.bracketed_end(record)
        taken.add(self.name, self.calls, record)


def elsewhere(call: Callable[..., object]) -> Callable[..., object]:
    """A copy of a Python function with its own code; anything else as it is.

    Two functions that do the same differ by some per cent at times, for all of a process's life,
    by where their code and the interpreter's notes in it are.
    """
    if type(call) is functools.partial:
        return functools.partial(elsewhere(call.func), *call.args, **call.keywords)
    if isinstance(call, MethodType):
        return MethodType(elsewhere(call.__func__), call.__self__)
    if not isinstance(call, FunctionType):
        return call
    code, given = _copied(call.__code__), (call.__defaults__, call.__closure__)
    copy = FunctionType(code, call.__globals__, call.__name__, *given)
    copy.__kwdefaults__ = call.__kwdefaults__
    copy.__dict__.update(call.__dict__)
    return copy


def _copied(code: CodeType) -> CodeType:
    parts = (_copied(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_consts=tuple(parts))


def calibrate(pieces: Sequence[Piece]) -> None:
    """How often each is called in a sample: equally often, unless one is much faster.

    What a sample costs by itself (its begin is cold) would else count more in one than in another.
    """
    for piece in pieces:
        piece.calibrate()
    counts = [piece.calls for piece in pieces]
    if max(counts) <= _ALIKE * min(counts):
        for piece in pieces:
            piece.calls = min(counts)


@contextmanager
def without_collector() -> Iterator[None]:
    """Python's garbage collector is off, and has nothing to do."""
    on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


class Here(Bracketed):
    """The experiment with what this process has: its ``pieces``, or samples ``taken`` already."""

    def __init__(self, pieces: Sequence[Piece] = (), taken: Taken | None = None) -> None:
        self._pieces, self._taken = pieces, taken or Taken()

    def plan(self, _params: Any) -> dict[str, Any]:
        """What is timed; nothing is measured."""
        _kernel()
        return {"names": [one.name for one in self._pieces]}

    def pilot(self, _params: Any, _plan: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: it would be in the run's plan, and calls are in its samples."""
        return {}

    def take(self, params: BracketedParams, session: Session) -> str:
        """All functions in rounds of random order; or one entry of what was taken."""
        session.provenance["kernel"] = _kernel().build.provenance
        if not self._pieces:
            columns = self._taken.columns()
            entry = {"round": 0, "position": 0, "configuration": 0, "wall_s": 0.0}
            session.journal.append({**entry, "columns": columns})
            return "all samples taken"
        from perflib.experiments.bracketed.measure import half_width_of

        order = random.Random(params.seed)
        with without_collector():
            calibrate(self._pieces)

            def trial(_round: int, _place: int) -> Columns:
                self._taken.turns(self._pieces, order, _TRIAL_S)
                return self._taken.columns()

            stopped = session.rounds(params, 1, trial, half_width_of(params.against), least_s=2.0)
        session.problems.append(_GC_OFF)
        return stopped

    def measured(self, given: Mapping[str, Any]) -> RunView:
        """The run, saved; ``PERFLIB_TAG`` marks it."""
        from perflib.measure.progress import Reporter

        params = self.params({"job": "here", **given})
        with Reporter(self.title) as progress:
            return bound(self.measure(params, progress, tag=os.environ.get("PERFLIB_TAG", "")))


def name_of(function: Callable[..., object]) -> str:
    """What a function is called in a run."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", type(function).__qualname__)


def bench(
    f: Callable[[], object],
    against: Callable[[], object] | None = None,
    *,
    name: str = "",
    budget_s: float = 20.0,
    **given: Any,
) -> RunView:
    """Time a function, alone or compared with another: in rounds, each sample between probes.

    Both are called in this process, so often that a sample takes half a millisecond. Of a Python
    function a fresh copy is called every 50 ms: where its own code is favours none. What else
    differs from process to process (C code, data, functions that they call) widens no interval.

    Parameters
    ----------
    f, against
        Without arguments: ``functools.partial`` or ``lambda`` give them some.
    name
        Of ``f``; by default its own.
    budget_s
        The longest time to measure.
    given
        Other parameters of ``bracketed``: ``precision_percent``, ``threshold_percent``, ``seed``.

    Returns
    -------
    The run, saved: ``run.summary()`` says how much longer ``f`` takes, ``run.table("pieces")`` has
    times.

    Raises
    ------
    UserError
        One is no function, or a parameter is wrong.

    Examples
    --------
    >>> pl.bench(new, against=old).summary()  # doctest: +SKIP
    New takes less time than old: −3.1 % ± 0.4.
    61 % ± 3 of the samples had their core alone: those count.
    """
    functions: tuple[object, ...] = (f, against)
    for one in functions:
        if one is not None and not callable(one):
            msg = f"{one!r} is no function: give one that is called without arguments"
            raise UserError(msg)
    pieces = [Piece(name or name_of(f), f)]
    if against is not None:
        other = name_of(against)
        other += " (against)" if other == pieces[0].name else ""
        pieces.append(Piece(other, against))
    return Here(pieces).measured({"budget_s": budget_s, "against": pieces[-1].name, **given})


class _Sample:
    """A piece of Python code as one sample, for a ``with`` statement."""

    def __init__(self, name: str, taken: Taken) -> None:
        self._name, self._taken = name, taken

    def __enter__(self) -> Self:
        kernel = _kernel()
        self._record = kernel.ffi.new("bracket *")
        kernel.lib.bracketed_begin(self._record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, _traceback: TracebackType | None
    ) -> None:
        _kernel().lib.bracketed_end(self._record)
        if kind is None:
            self._taken.add(self._name, 1, self._record)


class Sampling:
    """``with pl.sample("name"):`` takes a sample; ``pl.sample.run()`` makes a run of all.

    A piece should take 50 microseconds to a millisecond, and pieces that are compared come in
    turns. A sample whose piece raises an exception is not kept.
    """

    def __init__(self) -> None:
        self._taken = Taken()

    def __call__(self, name: str) -> _Sample:
        """A sample of the piece of this name."""
        return _Sample(str(name), self._taken)

    def run(self, **given: Any) -> RunView:
        """All samples since the last call as a run, saved.

        Parameters
        ----------
        given
            Parameters of ``bracketed``: ``against``, ``threshold_percent``.

        Raises
        ------
        UserError
            No sample was taken, or a parameter is wrong.
        """
        if not len(self._taken):
            msg = (
                "no sample was taken: put 'with pl.sample(\"name\"):' before pieces of the program"
            )
            raise UserError(msg)
        return Here(taken=self._taken).measured(given)


sample = Sampling()
