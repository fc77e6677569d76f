"""A virtual Slurm: a controller and four nodes, all of this machine, in a folder of its own.

Every daemon is a child of the test's process and dies with it. Nothing needs root, munge or a
configuration of the system.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from perflib.measure.conditions import Conditions
from perflib.measure.launch import command

NODES = ("node1", "node2", "node3", "node4")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo", "scontrol")
_WAIT_S = 120.0  # other tests run at the same time

_CONFIGURATION = Path(__file__).with_name("slurm.conf")


class NoSlurmError(Exception):
    """Its daemons do not get to work on this machine; the text has their last words."""


def wait_until(what: str, holds: Callable[[], bool], limit_s: float = _WAIT_S) -> None:
    """Wait for a condition; fail with its name."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.2)


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Slurm:
    """The daemons, and questions to them; use `slurm`."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        self.host = os.uname().nodename
        (folder / "state").mkdir()
        controller, *ports = _free_ports(1 + len(NODES))
        nodes = [
            f"NodeName={name} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port} CPUs=2 "
            "RealMemory=2000 State=UNKNOWN"
            for name, port in zip(NODES, ports, strict=True)
        ]
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(
            _CONFIGURATION.read_text().format(
                host=self.host, controller=controller, user=getpass.getuser(), folder=folder,
                nodes="\n".join(nodes),
            )
            + more
        )  # fmt: skip
        self.environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        # Snakemake takes SLURM_* away from what srun starts, also where the configuration is.
        self.path = folder / "bin"
        self.path.mkdir()
        for name in (*PROGRAMS, "sacct", "sacctmgr"):
            if real := shutil.which(name):
                place = self.path / name
                place.write_text(f'#!/bin/sh\nSLURM_CONF="{self.configuration}" exec {real} "$@"\n')
                place.chmod(0o755)
        self.environment["PATH"] = f"{self.path}:{self.environment['PATH']}"

    def start(self, name: str) -> None:
        """Start a daemon: ``slurmctld``, or a node's."""
        words = ["slurmctld", "-D", "-i"] if name == "slurmctld" else ["slurmd", "-D", "-N", name]
        argv, _ = command(Conditions(aslr=True), words)
        log = (self.folder / f"{name}.said").open("ab")
        with log:
            self.daemons[name] = subprocess.Popen(
                argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """Take a node's power away: its daemon, its steps, and what they run."""
        jobs = self.jobs("RUNNING").get(name, "none")
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()
        _kill(lambda one: one.cmdline()[:1] == [f"slurmstepd: [{jobs}.batch]"])
        _kill(lambda one: one.cmdline()[:1] == [f"slurmstepd: [{jobs}.0]"])
        _kill(lambda one: self._of(one) and one.environ().get("SLURMD_NODENAME") == name)

    def _of(self, process: psutil.Process) -> bool:
        """Whether a process is of this Slurm; it is no daemon that this process started."""
        known = process.environ()
        here = str(self.folder)
        mine = known.get("SLURM_CONF", "").startswith(here) or here in known.get("PATH", "")
        return mine and process.pid != os.getpid()

    def ask(self, *words: str) -> str:
        """What one of Slurm's programs answers."""
        answer = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        return answer.stdout.strip()

    def last_words(self) -> str:
        """What each daemon said last."""
        said = {path.name: path.read_text().splitlines()[-1:] for path in self.folder.glob("*.log")}
        return "; ".join(
            f"{name}: {line}" for name, lines in sorted(said.items()) for line in lines
        )

    def states(self) -> list[str]:
        """The nodes' states."""
        return self.ask("sinfo", "--noheader", "--Node", "--format=%T").split()

    def jobs(self, state: str) -> dict[str, str]:
        """The jobs in a state: their numbers, by node that was wanted."""
        lines = self.ask("squeue", "--noheader", f"--states={state}", "--format=%A %n").splitlines()
        return {words[1]: words[0] for line in lines if len(words := line.split()) == 2}

    def end(self) -> None:
        """End everything: jobs first, so that they leave nothing."""
        if "slurmctld" in self.daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.ask("scancel", "--user", getpass.getuser())
                wait_until("no job", lambda: not self.ask("squeue", "--noheader", "-o%A"), 20.0)
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        _kill(self._of)  # steps that a killed daemon left


def _kill(wanted: Callable[[psutil.Process], bool]) -> None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if wanted(process):
                process.kill()


@contextlib.contextmanager
def slurm(more: str = "") -> Iterator[Slurm]:
    """Four idle nodes; ``more`` is added to the configuration.

    Everything is ended afterwards, and its folder removed.

    The folder's name is short: a step's socket is in it, whose name Linux limits to 108 bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    virtual = Slurm(folder, more)
    try:
        for name in ("slurmctld", *NODES):
            virtual.start(name)
        try:
            wait_until("four idle nodes", lambda: virtual.states() == ["idle"] * len(NODES))
        except AssertionError as error:
            msg = f"no virtual Slurm starts here: {error}. {virtual.last_words()}"
            raise NoSlurmError(msg) from error
        yield virtual
    finally:
        virtual.end()
        shutil.rmtree(folder, ignore_errors=True)
