"""The competitor and the programs next to it: one trial is every program of a dose, once."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from perflib.experiments.sensitivity import SensitivityParams
from perflib.experiments.sensitivity.table import WITNESSES
from perflib.framework.jobs import job_template, log_format
from perflib.framework.starts import Start, start, with_functions
from perflib.instruments.joblog.jobrun import job_argv, run_logged
from perflib.instruments.perf.event_profile import Sampling
from perflib.instruments.profile.builds import library
from perflib.instruments.simulators.run import find_program
from perflib.kernels import build
from perflib.machine.scratch import scratch
from perflib.measure.conditions import Conditions, observe, violated
from perflib.measure.pages import of_programs
from perflib.measure.schedule import Columns
from perflib.measure.streams import CHUNK_BYTES, Streams, accounted
from perflib.model.errors import MeasurementError

MIB = 1 << 20
ARENA = "arena"
_SETTLE_S = 0.05  # the cache is occupied, and the queues are filled, by then
_MIN_PASSES = 2.0  # over what is occupied, while a program runs
_ON_EVERY_ROW = ("program", "dose", "level", "cpu_s", "wall_s", "ok")
_MIN_SHARE = 0.1  # of the time that a competitor has its core: its dose is what it did


class Dose(NamedTuple):
    """What the competitor does in a trial."""

    name: str
    level: float = 0.0
    kind: str = "read"
    delay: int = 0
    chunks: int = 0  # that each of its threads stays within; 0: it streams through all
    cpus: tuple[int, ...] = ()  # none: it is idle
    witness: str = ""  # our own job that must respond to it

    @property
    def programs(self) -> list[str]:
        """What is started in its trials: where nobody competes, there is nothing to control."""
        found = ["job"] if self.name.endswith("_pages") else ["job", "control"]
        found += [WITNESSES["traffic"], WITNESSES["occupied"]] if self.name == "control" else []
        return [*found, self.witness] if self.witness else found


def argv_of(params: SensitivityParams) -> list[str]:
    """The job's command line, its program as an absolute path; empty: it is one of ours.

    Raises
    ------
    UserError
        It cannot be split into words, or there is no such program.
    """
    if params.job != "command":
        return []
    template = job_template(params.job, params.job_command)
    argv = job_argv(template, first=params.first_event, events=params.events, seed=params.seed)
    return [str(find_program(argv, None).absolute()), *argv[1:]]


def sampling_of(params: SensitivityParams) -> Sampling | None:
    """How perf samples the job; None: it does not."""
    if not params.functions:
        return None
    return Sampling(frequency_hz=params.frequency_hz, call_graph="none")


def own_argv(job: str, bytes_: int, passes: int) -> list[str]:
    """The command line of one of our jobs."""
    program = str(build("bound_job", executable=True).library)
    return [program, job, str(bytes_), str(passes)]


class Trials:
    """The competitor's worker, and what is started next to it.

    Parameters
    ----------
    params, plan
        Of the run.
    doses
        What the competitor may do.
    """

    def __init__(
        self, params: SensitivityParams, plan: Mapping[str, Any], doses: Sequence[Dose] = ()
    ) -> None:
        self._params, self._plan, self._doses = params, plan, doses
        self._competitors: list[int] = [*plan["cpus"], *plan["siblings"]]
        self._opened = ExitStack()
        self.streams = Streams(params.conditions(None))
        self.problems: dict[str, None] = {}
        self.conditions: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._folder: Path = opened.enter_context(scratch())
            if self._competitors:
                opened.enter_context(self.streams)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def place(self) -> str:
        """Give the competitor its memory; why it has none, or empty."""
        if ARENA in self.streams:
            return ""
        return self.streams.place(
            ARENA, array_bytes=self._plan["array_bytes"], backing="4k", cpu=self._competitors[0],
            node=None,
        )  # fmt: skip

    def argv(self, program: str) -> list[str]:
        """The command line of a program of the samples."""
        if program == "job" and self._params.job == "command":
            return argv_of(self._params)
        own = {"job": self._params.job, "control": "compute"}.get(program, program)
        return own_argv(own, self._plan["bytes"][own], self._plan["passes"][own])

    def job(self, pages: of_programs.Level = "default", *, read_all: bool = False) -> Start:
        """Run the job to its end; with the times of its events, where those are compared."""
        if self._params.response != "event":
            return self._sampled(self.argv("job"), pages, read_all=read_all)
        wanted = of_programs.with_level(self._params.conditions(None), pages)
        return self._logged(wanted, read_all=read_all)

    def _sampled(self, argv: list[str], pages: of_programs.Level, *, read_all: bool) -> Start:
        """With the samples of each function, wherever in it, where functions are compared."""
        sampling = sampling_of(self._params)
        made = self.start(argv, pages, read_all=read_all, sampling=sampling)
        if made.functions is None:
            return made
        self.problems.update(dict.fromkeys(made.remarks))
        program = str(Path(argv[0]).resolve())
        places = [library(str(one), program) for one in made.functions["object"]]
        keys = ["symbol", "object", "event"]
        sums = made.functions.assign(object=places).groupby(keys, observed=True, sort=False)
        return replace(made, functions=sums[["period", "count"]].sum().reset_index())

    def _logged(self, wanted: Conditions, *, read_all: bool) -> Start:
        params, begin_ns, obtained = self._params, [0], dict[str, Any]()

        def place(pid: int) -> None:
            os.sched_setaffinity(pid, self._plan["job_cpus"])
            begin_ns[0] = time.monotonic_ns()

        def read(pid: int) -> None:
            if read_all and not obtained:
                with contextlib.suppress(MeasurementError):
                    found = observe(pid, wanted.environment)
                    obtained.update(found if found["environment_bytes"] else {})  # else it ended

        events = range(params.first_event, params.first_event + params.events)
        expressions = log_format(params.job_begin, params.job_end)
        result, times_ns = run_logged(
            self.argv("job"), expressions, wanted, events, timeout_s=params.job_timeout_s,
            on_start=place, on_event=read,
        )  # fmt: skip
        return Start(
            result.cpu_time_ns / 1e9, result.wall_s, None, "", None, None, None, begin_ns[0],
            obtained=obtained, violated=violated(wanted, obtained) if obtained else [],
            event_s=statistics.median(times_ns) / 1e9,
        )  # fmt: skip

    def start(
        self,
        argv: Sequence[str],
        pages: of_programs.Level = "default",
        *,
        read_all: bool = False,
        sampling: Sampling | None = None,
    ) -> Start:
        """Run a program to its end on the job's cores."""
        return start(
            argv, of_programs.with_level(self._params.conditions(None), pages), self._folder,
            cpus=self._plan["job_cpus"], timeout_s=self._params.job_timeout_s, read_all=read_all,
            sampling=sampling,
        )  # fmt: skip

    def take(self, round_: int, place: int) -> Columns:  # noqa: ARG002 all in each round
        """One row a program.

        Raises
        ------
        WorkerError
            The job failed, or the competitor's worker died.
        """
        dose = self._doses[place]
        why = self._begin(dose)
        rows, windows, functions = [], [], None
        try:
            for program in dose.programs:
                first = program == "job" and not self.conditions
                if program == "job":
                    made = self.job(self._pages(dose), read_all=first)
                    functions = made.functions
                else:
                    made = self.start(self.argv(program), self._pages(dose))
                if first:
                    wanted = asdict(self._params.conditions(None))
                    known = {"obtained": made.obtained, "violated": made.violated}
                    self.conditions.append({"requested": wanted, **known})
                windows.append((made.begin_ns, made.begin_ns + int(1e9 * made.wall_s)))
                rows.append(self._row(dose, program, made))
        finally:
            accounts, problem = None, ""
            if dose.cpus and not why:
                accounts, _, problem = self.streams.end(windows)
        if accounts is not None:
            moved, share = accounted(accounts, windows)
            for row, gb_s, part, (begin, end) in zip(rows, moved, share, windows, strict=True):
                passes = gb_s * (end - begin) / max(self._occupied_bytes(dose), 1)
                if part < _MIN_SHARE:
                    problem = problem or "the competitor hardly ran"
                row["ok"] &= bool(part >= _MIN_SHARE)
                if dose.name == "occupied":
                    row["ok"] &= bool(passes >= _MIN_PASSES)
                    row["occupied_bytes"] = float(self._occupied_bytes(dose))
                row["traffic_gb_s"] = float(gb_s) if dose.name in ("traffic", "occupied") else 0.0
        if why or problem:
            self.problems[f"in some trials: {why or problem}"] = None
        for row in rows:
            row["ok"] &= not why
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return with_functions(columns, functions, _ON_EVERY_ROW)

    def _pages(self, dose: Dose) -> of_programs.Level:
        pages: dict[str, of_programs.Level] = {
            "small_pages": "never", "huge_pages": self._plan["most_pages"]
        }  # fmt: skip
        return pages.get(dose.name, "default")

    def _begin(self, dose: Dose) -> str:
        if not dose.cpus:
            return ""
        why = self.place() or self.streams.begin(
            ARENA, dose.cpus, dose.kind, delay=dose.delay, segment_chunks=dose.chunks,
            limit_s=self._plan["limit_s"],
        )  # fmt: skip
        if not why:
            time.sleep(_SETTLE_S)
        return why

    @staticmethod
    def _occupied_bytes(dose: Dose) -> int:
        return dose.chunks * CHUNK_BYTES * len(dose.cpus)

    def _row(self, dose: Dose, program: str, made: Start) -> dict[str, Any]:
        known = self._plan["output"]
        changed = program == "job" and known is not None and made.output != known
        if changed:
            self.problems["the job's output changed in some trials: they are left out"] = None
        return {
            "program": program,
            "dose": dose.name,
            "level": dose.level,
            "cpu_s": made.cpu_s,
            "wall_s": made.wall_s,
            "event_s": made.event_s,
            "run_delay_s": made.run_delay_s,
            "traffic_gb_s": 0.0,
            "occupied_bytes": 0.0,
            "output": made.output,
            "start_ns": made.begin_ns,
            "ok": not changed,
        }
