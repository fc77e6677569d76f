"""Which functions and locks can be made faster virtually: by name, or the costliest."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from perflib.instruments.threads.record import profile_job
from perflib.instruments.threads.samples import cpu_samples
from perflib.instruments.threads.settings import Settings
from perflib.instruments.threads.waits import lock_waits
from perflib.instruments.what_if.shared import AddressRange, VirtualSpeedup
from perflib.machine.libraries.elf import read_elf
from perflib.measure.conditions import Conditions
from perflib.model.errors import UserError, choose
from perflib.model.expressions import Expression

MOST_MATCHES = 8  # of one expression: each is a target of its own
_LOCK_IN = "lock in "  # how `threads.lock_names` calls one that has no variable of its own
_CONDITION = ("condition", "barrier", "join", "semaphore", "other")  # nobody holds those


def functions(expression: str, modules: Sequence[str]) -> list[VirtualSpeedup]:
    """The functions whose names a regular expression is found in.

    Those of the program alone if there are any, else those of its libraries.

    Raises
    ------
    UserError
        There are none, or too many.
    """
    matches = Expression(expression, "--function")
    for files in (modules[:1], modules[1:]):
        found = _by_name(files, code=True)
        names = [name for name in found if matches.search(name)]
        if len(names) > MOST_MATCHES:
            shown = ", ".join(sorted(names)[:MOST_MATCHES])
            msg = (
                f"--function {expression!r} is found in the names of {len(names)} functions "
                f"({shown} ...); at most {MOST_MATCHES}. Write ^NAME$ for one of them"
            )
            raise UserError(msg)
        if names:
            return [VirtualSpeedup("function", name, tuple(found[name])) for name in names]
    known = [name for name in _by_name(modules[:1], code=True) if not name.startswith("_")]
    if not known:
        msg = (
            f"--function {expression!r}: the program's file names no functions: build it without "
            "stripping its symbols (no -s)"
        )
        raise UserError(msg)
    raise UserError(choose("function of the program", expression, known))


def locks(names: Iterable[str], modules: Sequence[str]) -> list[VirtualSpeedup]:
    """Locks by the names of their variables, or ``lock in FUNCTION`` for those it takes.

    Raises
    ------
    UserError
        There is no variable, or function, of that name.
    """
    found = []
    for name in names:
        inside = name.startswith(_LOCK_IN)
        table = _by_name(modules, code=inside)
        symbol = name.removeprefix(_LOCK_IN)
        if symbol not in table:
            program = _by_name(modules[:1], code=inside)
            what = "function that takes a lock" if inside else "variable that holds a lock"
            raise UserError(
                choose(what, symbol, [one for one in program if not one.startswith("_")])
                + ". A lock in allocated memory is named 'lock in FUNCTION', by who takes it"
            )
        kind = "lock_taken_in" if inside else "lock"
        found.append(VirtualSpeedup(kind, name, tuple(table[symbol])))  # type: ignore[arg-type]
    return found


def costliest(
    argv: Sequence[str],
    modules: Sequence[str],
    *,
    most_functions: int,
    most_locks: int,
    conditions: Conditions | None = None,
    cpus: Sequence[int] = (),
    timeout_s: float = 600.0,
) -> list[VirtualSpeedup]:
    """The functions with the most CPU time and the locks that are waited for longest.

    The job is run once under the profile of `perflib.instruments.threads`. Functions are the
    program's own where it names any.

    Raises
    ------
    MeasurementError
        The job cannot be started, or nothing was recorded.
    """
    with tempfile.TemporaryDirectory(prefix=f"perflib-what-if-{os.getpid()}-") as folder:
        recording = profile_job(
            argv,
            Settings(call_graph="none"),
            Path(folder) / "recording",
            "preload",
            conditions,
            cpus=cpus,
            timeout_s=timeout_s,
        ).recording
        samples = cpu_samples(recording)
        by_function = samples.groupby("symbol", observed=True)["period"].sum()
        waits = lock_waits(recording)
    waits = waits[~waits["kind"].isin(_CONDITION)]
    by_lock = waits.groupby("name")["total_s"].sum().sort_values(ascending=False, kind="stable")
    named = _by_name(modules[:1], code=True) or _by_name(modules, code=True)
    symbols = [str(one) for one in by_function.sort_values(ascending=False, kind="stable").index]
    targets = [
        VirtualSpeedup("function", name, tuple(named[name])) for name in symbols if name in named
    ][:most_functions]
    for name in [str(one) for one in by_lock[by_lock > 0].index]:
        if len(targets) >= most_functions + most_locks:
            break
        try:
            targets += locks([name], modules)
        except UserError:  # it is called by its address alone
            continue
    return targets


def _by_name(modules: Iterable[str], *, code: bool) -> Mapping[str, list[AddressRange]]:
    """The places of every function, or variable, by name."""
    places: dict[str, list[AddressRange]] = {}
    for module in modules:
        file = read_elf(Path(module))
        for start, end, name in file.code if code else file.data:
            if end > start:
                places.setdefault(name, []).append(AddressRange(module, start, end))
    return places
