"""The programs that are started: their command lines, and links that give them longer names."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflib.experiments.layout.factors import Layout, columns_of, conditions
from perflib.experiments.layout.trials import Start, start
from perflib.framework.jobs import job_template
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.simulators.run import find_program
from perflib.kernels import build as build_kernel

if TYPE_CHECKING:
    from perflib.experiments.layout import LayoutParams

__all__ = ["Programs", "argv_of"]

_ALIASING = "alias_environment"


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
        builds = ("A", "B") if params.other_command else ("A",)
        self._argv = {build: argv_of(params, build) for build in builds}
        self._longest = max(len(Path(argv[0]).name) for argv in self._argv.values())
        self._links: dict[tuple[str, int], str] = {}
        self._obtained: list[dict[str, Any]] = []

    def start(self, build: str, layout: Layout, *, read_all: bool = False) -> Start:
        """Run a build to its end in a layout."""
        argv = list(self._argv[build])
        if "argv0" in layout:
            argv[0] = self._link(build, layout["argv0"])
        wanted = conditions(self._params, layout, self._plan["environment_bytes"])
        made = start(
            argv,
            wanted,
            self._folder,
            cpus=self._plan["cpus"],
            timeout_s=self._params.job_timeout_s,
            read_all=read_all,
        )
        if made.obtained and len(self._obtained) < 100:
            self._obtained.append(
                {"requested": asdict(wanted), "obtained": made.obtained, "violated": made.violated}
            )
        return made

    def _link(self, build: str, more_bytes: int) -> str:
        """A link to a build, in a folder whose name makes all builds' paths equally long."""
        if (build, more_bytes) not in self._links:
            program = Path(self._argv[build][0])
            letters = 1 + self._longest - len(program.name) + more_bytes
            folder = self._folder / build / ("x" * letters)
            folder.mkdir(parents=True, exist_ok=True)
            link = folder / program.name
            link.symlink_to(program)
            self._links[build, more_bytes] = str(link)
        return self._links[build, more_bytes]

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
            "start_ns": made.begin_ns,
            "ok": right,
        }

    def provenance(self) -> dict[str, Any]:
        """The programs, and what was requested and obtained where it was read back."""
        found: dict[str, Any] = {
            "job": "; ".join(shlex.join(argv) for argv in self._argv.values()),
            "conditions": self._obtained,
        }
        if self._params.job == "aliasing":
            found["program"] = build_kernel(_ALIASING, executable=True).provenance
        return found
