"""Whose core a CPU is a thread of, by the newest run of `sharing` on this machine since boot."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perflib.machine.identity import identity
from perflib.model.errors import PerflibError
from perflib.store import config
from perflib.store.query import query

Pair = tuple[int, int]
_FINDINGS = """
    SELECT run, claim, verdict, coalesce(CAST(about ->> '$.a' AS BIGINT), -1) AS a,
        coalesce(CAST(about ->> '$.b' AS BIGINT), -1) AS b
    FROM findings WHERE claim IN ('shared', 'moved')
        AND coalesce(about ->> '$.resource', 'ports') = 'ports' AND run = (
            SELECT run FROM runs WHERE experiment = 'sharing' AND analysed IS NOT NULL
                AND provenance ->> '$.machine.boot_id' = '{boot_id}'
                AND coalesce(provenance ->> '$.machine.machine_id', '') = '{machine_id}'
            ORDER BY "start" DESC, run DESC LIMIT 1)"""


@dataclass(frozen=True)
class Measured:
    """Of a run the pairs that are decided: whether the two are threads of one core.

    ``moved``: pairs for which that changed within the run; then ``together`` is empty.
    """

    run: str = ""
    together: Mapping[Pair, bool] = field(default_factory=dict)
    moved: tuple[Pair, ...] = ()


def measured_siblings() -> Measured:
    """What is known of this machine since it was booted; empty where nothing is."""
    here = identity()
    try:
        folder = config.runs_dir().value
        runs = sorted(
            (one.name, one.lstat().st_mtime_ns) for one in folder.glob("sharing-*.parquet")
        )
    except (OSError, PerflibError):  # without a store nothing is known
        return Measured()
    if not runs or not here["boot_id"]:
        return Measured()
    return _read(folder, tuple(runs), here["boot_id"], here["machine_id"] or "")


@functools.lru_cache(maxsize=1)
def _read(folder: Path, _runs: tuple[tuple[str, int], ...], boot_id: str, machine: str) -> Measured:
    """What a store says; all that may change it is among the arguments."""
    try:
        sql = _FINDINGS.format(boot_id=boot_id, machine_id=machine)
        rows = query(sql, folder=folder).to_dict("records")
    except PerflibError:  # none of the files is a run
        return Measured()
    run = str(rows[0]["run"]) if rows else ""
    found = [(one, (int(one["a"]), int(one["b"]))) for one in rows if one["a"] >= 0 <= one["b"]]
    moved = [
        pair for one, pair in found if (one["claim"], one["verdict"]) == ("moved", "supported")
    ]
    if moved:
        return Measured(run, {}, tuple(sorted(moved)))
    decided = {"supported": True, "refuted": False}
    return Measured(
        run,
        {
            pair: decided[one["verdict"]]
            for one, pair in found
            if one["claim"] == "shared" and one["verdict"] in decided
        },
    )


def siblings(
    measured: Measured, kernel: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """By CPU, the threads of its core: as the kernel has it, but where a measurement differs."""
    pairs = {(a, b) for a, mine in kernel.items() for b in mine if a < b}
    pairs |= {one for one, same in measured.together.items() if same}
    pairs -= {one for one, same in measured.together.items() if not same}
    cores = {cpu: {cpu} for cpu in kernel}
    for a, b in pairs:
        if a in cores and b in cores:
            both = cores[a] | cores[b]
            cores.update(dict.fromkeys(both, both))
    return {cpu: tuple(sorted(mine)) for cpu, mine in cores.items()}


def notes(measured: Measured, kernel: Mapping[int, tuple[int, ...]]) -> dict[Pair, str]:
    """A sentence for each pair of which the kernel says something else, or that moved."""
    run = f"sharing run {measured.run}"
    said = {
        (a, b): f"cpu{a} and cpu{b} moved within {run}, which therefore corrects nothing"
        for a, b in measured.moved
    }
    for (a, b), same in sorted(measured.together.items()):
        if a in kernel and b in kernel and same != (b in kernel[a]):
            text = f"are on two cores, though the kernel says one ({run})"
            if same:
                text = f"are threads of one core, though the kernel says two ({run})"
                text += ": one of them at a time"
            said[a, b] = f"cpu{a} and cpu{b} {text}"
    return said
