"""Simulated 4K aliases of the program at each size of its environment, next to the times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from perflib.experiments.aliasing.environment.addresses import (
    PAGE,
    STACK,
    STATIC,
    pairs_of,
    with_stack_lower,
)
from perflib.experiments.aliasing.environment.starts import Program, padded, read_line
from perflib.instruments.simulators.models import HASWELL_STORES, StoreBufferModel
from perflib.instruments.simulators.qemu import qemu_counts
from perflib.machine.scratch import scratch

_LOOP = "microkernel"
_TIMEOUT_S = 60.0


def simulated_aliases(
    program: Program,
    sizes: Sequence[int],
    *,
    variables: Mapping[str, str],
    origin: tuple[int, Mapping[str, int]],
    at_once: int,
    progress: Callable[[int], None] = lambda _: None,
    model: StoreBufferModel = HASWELL_STORES,
) -> dict[str, Any]:
    """Aliases an iteration of the loop, at each size.

    QEMU arranges a stack as the kernel does, but for a constant distance. So each size is simulated
    with an environment larger by that distance, and the variables are in the low 12 bits where they
    are without QEMU; the addresses that the simulated program prints must say so.

    Parameters
    ----------
    program
        With few iterations: they are some 20 times as slow.
    sizes
        Sizes of the environment.
    variables
        The environment, but for what fills it up.
    origin
        A size of the environment, and the addresses that the program has there without QEMU.
    at_once
        How many to simulate side by side: nothing is timed.
    progress
        Called with the number of sizes that are done; what it raises ends the simulation.
    model
        The store buffer.

    Returns
    -------
    ``model`` and ``tool`` in words, ``shift_bytes``, and ``rows`` of ``environment_bytes``,
    ``aliases_per_iteration``, ``pairs`` (by the simulated addresses) and ``same_place`` (do they
    agree in the low 12 bits with those without QEMU?).

    Raises
    ------
    UserError, MeasurementError
        As of ``qemu_counts``: no QEMU, or it failed.
    """
    with scratch() as folder:

        def simulate(place: int, environment_bytes: int) -> tuple[Any, dict[str, int]]:
            file = folder / f"{place:06d}"
            # The arguments are on the stack, too: all files' names are of one length.
            argv = [str(program.path), *program.arguments(str(file))[1:]]
            table = qemu_counts(
                argv, store_buffer=model, by="symbol", timeout_s=_TIMEOUT_S,
                environment=padded(variables, environment_bytes),
            )  # fmt: skip
            reported = read_line(file.read_text(), "the simulated program")
            return table, {name: int(reported[name]) for name in (*STATIC, *STACK)}

        first, addresses = origin
        _, there = simulate(0, first)
        shift = (there["inc"] - addresses["inc"]) % PAGE

        def row(numbered: tuple[int, int]) -> tuple[dict[str, Any], Any]:
            place, size = numbered
            table, found = simulate(place, size + shift)
            mine = table[(table["counter"] == "4K aliases") & (table["symbol"] == _LOOP)]
            loops = program.iterations * (program.repetitions + 1)
            lower = size - first if program.variables == "free" else 0
            expected = with_stack_lower(addresses, lower)
            return {
                "environment_bytes": size,
                "aliases_per_iteration": float(mine["simulated_count"].sum()) / loops,
                "pairs": " ".join(pairs_of(found)),
                "same_place": all((found[name] - at) % PAGE == 0 for name, at in expected.items()),
            }, table

        pool = ThreadPoolExecutor(max(1, at_once))
        try:
            waiting = [pool.submit(row, numbered) for numbered in enumerate(sizes, start=1)]
            done = []
            for each in waiting:
                done.append(each.result())
                progress(len(done))
        finally:  # after an error, or Ctrl-C, what has not begun does not begin
            pool.shutdown(cancel_futures=True)
    tools = {str(tool) for _, table in done for tool in table["tool"]}
    return {
        "model": str(model),
        "tool": ", ".join(sorted(tools)),
        "shift_bytes": shift,
        "rows": [one for one, _ in done],
    }
