"""The programs that are started: their command lines, and links that give them longer names."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perflib.experiments.layout import LayoutParams
from perflib.experiments.layout.factors import Layout, columns_of, conditions
from perflib.experiments.layout.relink import link, orders
from perflib.framework.jobs import job_template
from perflib.framework.starts import Start, start, with_functions
from perflib.instruments.counters.groups import Requested
from perflib.instruments.counters.sets import asked_for
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.perf.event_profile import Sampling
from perflib.instruments.simulators.run import find_program
from perflib.kernels import build as build_kernel
from perflib.measure.schedule import Columns

_ALIASING = "alias_environment"
_ON_EVERY_ROW = ("build", "layout", "cpu_s", "wall_s", "ok")


def builds_of(params: LayoutParams) -> list[str]:
    """The builds that are started: ``A``, and ``B`` where there is another command."""
    return ["A", "B"] if params.other_command else ["A"]


def argv_of(params: LayoutParams, build: str) -> list[str]:
    """The command line of a build, its program as an absolute path.

    Raises
    ------
    UserError
        It cannot be split into words, or there is no such program.
    """
    if params.job == "aliasing":
        program = build_kernel(_ALIASING, executable=True).library
        template = f"{shlex.quote(str(program))} {params.iterations} 1 free /dev/null"
    else:
        command = params.other_command if build == "B" else params.job_command
        template = job_template(params.job, command)
    argv = job_argv(template, first=0, events=params.events, seed=params.seed)
    return [str(find_program(argv, None).absolute()), *argv[1:]]


def counters_of(params: LayoutParams) -> dict[str, list[Requested]]:
    """The requested sets of counters by name.

    Raises
    ------
    UserError
        A name is no set and no event.
    """
    return asked_for((name for name in params.counters if name != "none"), also=["none"])


def sampling_of(params: LayoutParams) -> Sampling | None:
    """How perf samples each start; None: it does not."""
    if not params.functions:
        return None
    return Sampling(frequency_hz=params.frequency_hz, call_graph=params.call_graph)


class Programs:
    """The builds, ready to be started in layouts.

    Parameters
    ----------
    params, plan
        Of the run.
    folder
        For links and output.
    """

    def __init__(self, params: LayoutParams, plan: Mapping[str, Any], folder: Path) -> None:
        self._params, self._plan, self._folder = params, plan, folder
        self._argv = {build: argv_of(params, build) for build in builds_of(params)}
        self._longest = max(len(Path(argv[0]).name) for argv in self._argv.values())
        self._links: dict[tuple[str, int], str] = {}
        self._linked: dict[int, str] = {}
        self._sets = [one for name, one in counters_of(params).items() if name in plan["counted"]]
        self._events = [event.name for one in self._sets for event in one]
        if numbers := plan["factors"].get("link_order"):
            every = orders(params.relink, params.link_orders, params.seed)
            for number in numbers:
                path = folder / "linked" / f"{number:02d}" / Path(self._argv["A"][0]).name
                path.parent.mkdir(parents=True)
                link(params.relink, every[number], path)
                self._linked[number] = str(path)
        self._obtained: list[dict[str, Any]] = []
        self._sampling = sampling_of(params)
        self.remarks: dict[str, None] = {}

    def start(
        self,
        build: str,
        layout: Layout,
        *,
        read_all: bool = False,
        round_: int | None = None,
    ) -> Start:
        """Run a build to its end in a layout; in a round it is counted, one set a round."""
        wanted = conditions(self._params, layout, self._plan["environment_bytes"])
        counts = bool(self._sets) and round_ is not None
        made = start(
            self.command(build, layout),
            wanted,
            self._folder,
            cpus=self._plan["cpus"],
            timeout_s=self._params.job_timeout_s,
            read_all=read_all,
            counted=self._sets[(round_ or 0) % len(self._sets)] if counts else (),
            sampling=self._sampling,
        )
        self.remarks.update(dict.fromkeys(made.remarks))
        if made.obtained and len(self._obtained) < 100:
            self._obtained.append(
                {"requested": asdict(wanted), "obtained": made.obtained, "violated": made.violated}
            )
        return made

    def named(self, build: str) -> str:
        """A build in words: with its file, where there are two."""
        program = self._argv[build][0]
        return f"build {build} ({program})" if len(self._argv) > 1 else program

    def files(self) -> dict[str, str]:
        """The file of each build's program."""
        return {build: str(Path(argv[0]).resolve()) for build, argv in self._argv.items()}

    def command(self, build: str, layout: Layout) -> list[str]:
        """The command line of a build in a layout."""
        program, *arguments = self._argv[build]
        program = self._linked[layout["link_order"]] if "link_order" in layout else program
        if "argv0" in layout:
            program = self._link(program, build, layout["argv0"])
        return [program, *arguments]

    def _link(self, program: str, build: str, more_bytes: int) -> str:
        """A link to a program, in a folder whose name makes all programs' paths equally long."""
        if (program, more_bytes) not in self._links:
            name = Path(program).name
            letters = 1 + self._longest - len(name) + more_bytes
            folder = self._folder / f"{build}{len(self._links):05d}" / ("x" * letters)
            folder.mkdir(parents=True)
            path = folder / name
            path.symlink_to(program)
            self._links[program, more_bytes] = str(path)
        return self._links[program, more_bytes]

    def row(self, build: str, layout: Layout, made: Start) -> dict[str, Any]:
        """A start as a row of the samples."""
        columns = columns_of(layout)
        wanted = conditions(self._params, layout, self._plan["environment_bytes"])
        right = made.environment_bytes in (None, wanted.environment_bytes) and not made.violated
        return {
            "build": build,
            "cpu_s": made.cpu_s,
            "wall_s": made.wall_s,
            "run_delay_s": made.run_delay_s,
            **columns,
            "environment_bytes": made.environment_bytes,
            "stack_address": made.stack_address,
            "output": made.output,
            **dict.fromkeys(self._events),
            **made.counts,
            "start_ns": made.begin_ns,
            "ok": right,
        }

    def rows(self, build: str, layout: Layout, made: Start, number: int) -> Columns:
        """A start as rows of the samples: one, or one for each function, line and stack.

        Of several the first alone has what is known of the start and what no row must have.
        """
        row = self.row(build, layout, made) | {"layout": number}
        columns = {name: [value] for name, value in row.items()}
        return with_functions(columns, made.functions, _ON_EVERY_ROW)

    def provenance(self) -> dict[str, Any]:
        """The programs, and what was requested and obtained where it was read back."""
        found: dict[str, Any] = {
            "job": "; ".join(shlex.join(argv) for argv in self._argv.values()),
            "conditions": self._obtained,
        }
        if self._params.job == "aliasing":
            found["program"] = build_kernel(_ALIASING, executable=True).provenance
        return found
