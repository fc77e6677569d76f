"""Whose core a CPU is a thread of, by the newest run of `sharing` on this machine since boot."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from perflib.machine.identity import identity
from perflib.model.errors import PerflibError
from perflib.store import config
from perflib.store.query import query

Pair = tuple[int, int]
Threads = Mapping[int, tuple[int, ...]]  # by CPU, all of its core
_FINDINGS = """
    SELECT run, claim, verdict, CAST(about ->> '$.a' AS INT) AS a, CAST(about ->> '$.b' AS INT) AS b
    FROM findings WHERE run = (
        SELECT run FROM runs WHERE experiment = 'sharing' AND analysed IS NOT NULL
            AND provenance ->> '$.machine.boot_id' = '{boot_id}'
            AND coalesce(provenance ->> '$.machine.machine_id', '') = '{machine_id}'
        ORDER BY "start" DESC, run DESC LIMIT 1
    ) AND (claim = 'moved' AND verdict = 'supported' OR claim = 'shared'
        AND verdict <> 'inconclusive' AND about ->> '$.resource' = 'ports')"""


class Measured(NamedTuple):
    """A run, and of each pair that it decides whether the two are threads of one core.

    ``None``: that changed within the run, which then decides nothing else.
    """

    run: str
    pairs: Mapping[Pair, bool | None]


NOTHING = Measured("", {})


def measured_siblings() -> Measured:
    """What is known of this machine since it was booted."""
    here = identity()
    try:
        folder = config.runs_dir().value
        runs = sorted(
            (one.name, one.lstat().st_mtime_ns) for one in folder.glob("sharing-*.parquet")
        )
    except (OSError, PerflibError):  # without a store nothing is known
        return NOTHING
    if not runs or not here["boot_id"]:
        return NOTHING
    return _read(folder, tuple(runs), here["boot_id"], here["machine_id"] or "")


@functools.lru_cache(maxsize=1)
def _read(folder: Path, _runs: tuple[tuple[str, int], ...], boot_id: str, machine: str) -> Measured:
    """What a store says; all that may change it is among the arguments."""
    try:
        found = query(_FINDINGS.format(boot_id=boot_id, machine_id=machine), folder=folder)
    except PerflibError:  # none of the files is a run
        return NOTHING
    if found.empty:
        return NOTHING
    rows = [
        (one["claim"], (one["a"], one["b"]), one["verdict"]) for one in found.to_dict("records")
    ]
    moved = {pair: None for claim, pair, _ in rows if claim == "moved"}
    decided = {pair: verdict == "supported" for _, pair, verdict in rows}
    return Measured(str(found["run"].iloc[0]), moved or decided)


def siblings(measured: Measured, kernel: Threads) -> dict[int, tuple[int, ...]]:
    """By CPU, the threads of its core: as the kernel has it, but where a measurement differs."""
    pairs = {(a, b): True for a, mine in kernel.items() for b in mine if a < b}
    pairs |= {pair: same for pair, same in measured.pairs.items() if same is not None}
    cores = {cpu: {cpu} for cpu in kernel}
    for (a, b), same in pairs.items():
        if same and {a, b} <= cores.keys():
            both = cores[a] | cores[b]
            cores.update(dict.fromkeys(both, both))
    return {cpu: tuple(sorted(mine)) for cpu, mine in cores.items()}


def notes(measured: Measured, kernel: Threads) -> dict[Pair, str]:
    """A sentence for each pair of which the kernel says something else, or that moved."""
    run, said = f"sharing run {measured.run}", {}
    for (a, b), same in measured.pairs.items():
        if not {a, b} <= kernel.keys() or same == (b in kernel[a]):
            continue
        text = f"are on two cores, though the kernel says one ({run})"
        if same is None:
            text = f"moved within {run}, which therefore corrects nothing"
        elif same:
            text = f"are threads of one core, though the kernel says two ({run})"
            text += ": one of them at a time"
        said[a, b] = f"cpu{a} and cpu{b} {text}"
    return said
