"""The trials of ``alias_environment``: one start of the program each, verified, and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perflib.experiments.aliasing.environment.addresses import (
    PAGE,
    STATIC,
    pairs_of,
    with_stack_lower,
)
from perflib.experiments.aliasing.environment.starts import Program, Start, start
from perflib.experiments.aliasing.environment.table import ASLR, LINK_ORDER, SWEEP
from perflib.framework.brackets import bracket_columns, core_mhz
from perflib.instruments.counters.groups import CounterGroup
from perflib.instruments.counters.sets import events_of
from perflib.instruments.counters.watched import watch
from perflib.kernels import Build
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker
from perflib.measure.schedule import Columns
from perflib.measure.workers import Workers


class Configuration(NamedTuple):
    """What one trial starts: ``core`` counts the run's cores, ``order`` the link orders from 0."""

    kind: str
    core: int
    environment_bytes: int
    order: int = 0


class _Counted:
    """The counters of one core's worker and of all that it starts; one set a round is on."""

    def __init__(self, pid: int, names: Sequence[str]) -> None:
        self.pid = pid
        self.groups = [CounterGroup(events_of(name), watch(pid=pid), name=name) for name in names]

    def close(self) -> None:
        for group in self.groups:
            group.close()


class EnvironmentTrials(Workers):
    """A launcher on each core; a trial starts the program once and notes what it reports.

    Parameters
    ----------
    launcher
        The kernel as a library.
    conditions
        Of the launchers, core by core; the programs inherit them.
    programs
        The sweep's program, and that of each link order.
    configurations
        What a trial's number means.
    variables
        The program's environment, but for what fills it up.
    predicted
        Sizes of the sweep at which the low 12 bits agree, with the pairs.
    origin
        The sweep's program's addresses at the smallest size: those of the stack must be as much
        lower as the environment is larger.
    sets
        The sets of counters, one a round.
    """

    def __init__(
        self,
        launcher: Build,
        conditions: Sequence[Conditions],
        programs: tuple[Program, Sequence[Program]],
        configurations: Sequence[Configuration],
        *,
        variables: Mapping[str, str],
        predicted: Mapping[int, Sequence[str]],
        origin: tuple[int, Mapping[str, int]],
        sets: Sequence[str],
    ) -> None:
        super().__init__(launcher, conditions)
        self._conditions = conditions
        self._sweep, self._orders = programs
        self._configurations = configurations
        self._variables = variables
        self._predicted = predicted
        self._origin = origin
        self._sets = sets
        self._counted: dict[int, _Counted] = {}
        self._names = list(dict.fromkeys(event.name for name in sets for event in events_of(name)))

    def __exit__(self, *_: object) -> None:
        for counted in self._counted.values():
            counted.close()
        super().__exit__()

    def take(self, round_: int, configuration: int) -> Columns:
        """One start of a configuration."""
        wanted = self._configurations[configuration]
        worker = self[wanted.core]
        worker.start()
        program = self._orders[wanted.order] if wanted.kind == LINK_ORDER else self._sweep
        group = self._group(wanted.core, worker, round_) if wanted.kind == SWEEP else None
        if group is not None:
            group.reset()
            group.enable()
        done = start(
            worker, program, wanted.environment_bytes, variables=self._variables,
            randomised=wanted.kind == ASLR,
        )  # fmt: skip
        counts: dict[str, float | None] = dict.fromkeys(self._names)
        if group is not None:
            group.disable()
            counts |= group.totals()
        reported, pairs = done.reported, pairs_of(done.addresses)
        here = wanted.kind == SWEEP
        row = {
            "kind": wanted.kind,
            "cpu": self._conditions[wanted.core].cpu,
            "environment_bytes": wanted.environment_bytes,
            "link_order": program.order,
            "predicted": wanted.environment_bytes in self._predicted if here else bool(pairs),
            "pairs": " ".join(pairs),
            **{f"{name}_address": place for name, place in done.addresses.items()},
            "time_ns": reported["time_ns"],
            "least_ns": reported["least_ns"],
            **{name: value for name, (value,) in bracket_columns(done.fastest).items()},
            "core_mhz": round(float(core_mhz(done.fastest)[0]), 1),
            "start_ns": done.begin_ns,
            "wall_ns": done.wall_ns,
            "ok": self._right(wanted, done, pairs),
            **counts,
        }
        return {name: [value] for name, value in row.items()}

    def _right(self, wanted: Configuration, done: Start, pairs: Sequence[str]) -> bool:
        """Whether it was started as requested; what it lacked is a problem of the run."""
        reported, cpu = done.reported, self._conditions[wanted.core].cpu
        wrong = []
        if reported["environment_bytes"] != wanted.environment_bytes:
            wrong.append("in some starts the environment had another size than requested")
        if reported["cpu"] != cpu:
            wrong.append(f"in some starts the program was not on cpu{cpu} all the time")
        if wanted.kind != ASLR and reported["aslr"] == 1:
            wrong.append("in some starts addresses were randomised")
        if wanted.kind == SWEEP:
            free = self._sweep.variables == "free"
            if not self._as_predicted(wanted.environment_bytes, done.addresses, free=free):
                wrong.append("in some starts the addresses were not those that were predicted")
            elif free and pairs != list(self._predicted.get(wanted.environment_bytes, [])):
                wrong.append("in some starts other addresses agreed than was predicted")
        self.problems.update(dict.fromkeys(wrong))
        return not wrong

    def _as_predicted(self, size: int, found: Mapping[str, int], *, free: bool) -> bool:
        """Free variables are where the environment leaves them, held ones as before in a page."""
        smallest, addresses = self._origin
        expected = with_stack_lower(addresses, size - smallest if free else 0)
        return all(
            found[name] == at
            or (not free and name not in STATIC and (found[name] - at) % PAGE == 0)
            for name, at in expected.items()
        )

    def _group(self, core: int, worker: Worker, round_: int) -> CounterGroup | None:
        """The set of counters of this round, on this core's launcher."""
        if not self._sets or worker.pid is None:
            return None
        counted = self._counted.get(core)
        if counted is None or counted.pid != worker.pid:
            if counted is not None:
                counted.close()
            counted = self._counted[core] = _Counted(worker.pid, self._sets)
        return counted.groups[round_ % len(counted.groups)]
