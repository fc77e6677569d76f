"""The processes of a job in a data file of perf, what they executed, and what they mapped where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perflib.instruments.perf.data import PerfData, Type
from perflib.instruments.threads.symbols import Mapping as Mapped

_EXECUTABLE = 4


class _Row(NamedTuple):
    time_ns: int
    start: int
    size: int
    offset: int
    text: str


@dataclass(frozen=True)
class Tree:
    """The processes that descend from one, whatever they execute later.

    Attributes
    ----------
    pids
        Process ids. One that the kernel gave anew, to another process, is among them.
    executed_ns
        When each executed its last program, if it executed one.
    executed
        The files of the programs that each executed, in order.
    """

    pids: frozenset[int]
    parents: Mapping[int, int]
    executed_ns: Mapping[int, int]
    executed: Mapping[int, Sequence[str]]
    rows: Mapping[int, Sequence[_Row]]

    def mappings(self, pid: int) -> list[Mapped]:
        """What its last program mapped where; with what it inherited, if it executed none."""
        chain = [pid]
        while chain[-1] not in self.executed_ns and self.parents.get(chain[-1]) in self.pids:
            parent = self.parents[chain[-1]]
            if parent in chain:
                break
            chain.append(parent)
        return [
            Mapped(row.start, row.start + row.size, row.offset, row.text)
            for one in reversed(chain)
            for row in self.rows.get(one, ())
            if row.time_ns >= self.executed_ns.get(one, 0)
        ]


def read_tree(path: Path, root: int) -> Tree:
    """Go through a data file for the processes that descend from one, and their mappings."""
    parents: dict[int, int] = {}
    execs: dict[int, list[int]] = defaultdict(list)
    rows: dict[int, list[_Row]] = defaultdict(list)
    executable: dict[int, list[tuple[int, str]]] = defaultdict(list)
    seen: set[tuple[int, _Row]] = set()
    with PerfData(path) as data:
        for part in data.records():
            kinds = part["type"]
            forks = part[(kinds == Type.FORK) & (part["pid"] != part["a"])]
            parents.update(zip(forks["pid"].tolist(), forks["a"].tolist(), strict=True))
            for one in part[(kinds == Type.COMM) & (part["misc"] & Type.EXEC != 0)]:
                execs[int(one["pid"])].append(int(one["time_ns"]))
            for one in part[np.isin(kinds, (Type.MMAP, Type.MMAP2))]:
                name = data.names[one["text"]]
                if not name.startswith("/") or name.startswith("//"):
                    continue  # anonymous memory, of which there may be very much
                row = _Row(int(one["time_ns"]), int(one["a"]), int(one["b"]), int(one["c"]), name)
                pid = int(one["pid"])
                if one["d"] & _EXECUTABLE:
                    executable[pid].append((row.time_ns, name))
                if (pid, row._replace(time_ns=0)) not in seen or row.time_ns:
                    seen.add((pid, row._replace(time_ns=0)))
                    rows[pid].append(row)
    pids = {root}
    while more := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= more
    executed = {}
    for pid in pids & execs.keys():
        found = sorted(executable[pid], key=lambda row: row[0])
        executed[pid] = [
            next((name for at, name in found if at >= time_ns), "")
            for time_ns in sorted(execs[pid])
        ]
    return Tree(
        pids=frozenset(pids),
        parents=parents,
        executed_ns={pid: max(execs[pid]) for pid in pids & execs.keys()},
        executed=executed,
        rows={pid: sorted(rows[pid], key=lambda row: row.time_ns) for pid in pids & rows.keys()},
    )
