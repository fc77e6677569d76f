"""A command of perflib that something is done to: where it runs, what it held, what it leaves."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from perflib.machine.files import fields
from perflib.machine.processes import family, is_gone
from perflib.machine.settings.guard import read_setting
from perflib.measure.schedule import frame_of
from perflib.model.recorded import without_user
from perflib.store import run_files

# So that a run takes a few seconds; beside the preset ``quick``.
QUICK: Mapping[str, Mapping[str, str]] = {
    "counters": {"job_ms": "50", "jobs": "1", "sets": "software,faults"},
    "random_calls": {"backings": "4k,thp", "sizes_kib": "16,64,512", "functions": "1024"},
    "code_segment": {
        "backings": "4k,thp",
        "sizes_kib": "32,128,512",
        "patterns": "random,page",
        "simulated_sizes": "0",
    },
    "memory_levels": {"backings": "4k,thp", "largest_mib": "16", "sizes_per_doubling": "1"},
    "numa": {"array_mib": "16"},
    "alias_environment": {
        "simulate": "false",
        "link_orders": "0",
        "aslr_starts": "0",
        "starts": "2",
    },
    "alias_offsets": {"functions": "convolution,copy", "levels": "O2", "blas": "none"},
    "allocators": {"allocators": "glibc", "processes": "4", "functions": "copy"},
    "erasure_coding": {"implementations": "ours_table,ours_simd", "block_mib": "0.25"},
    "threads": {"events": "20", "versions": "Initial,Final"},
}
BUDGET_S = 1.0
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_GUARD = os.path.join("settings", "guard.py")  # noqa: PTH118 (a part of a command line)
_NOT_EVERY_ROUND = "memory_levels"  # visits some configurations in every other round or less
_LEAVE_S = 20.0  # in which what outlives the command must end: the guard, a compiler
_POLL_S = 0.005
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of whatever a child leaves behind, so that nothing escapes the count."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGHUP, signal.SIGINT):  # nohup and & ignore them, children would, too
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Held:
    """What a journal held when the fault came."""

    run: str = ""
    trials: list[dict[str, Any]] = field(default_factory=list)

    @property
    def samples(self) -> pd.DataFrame:
        """Its rows, as the saved run is to have them."""
        frame: pd.DataFrame = without_user(frame_of(self.trials))
        return frame


class Subject:
    """One run of an experiment in folders of its own.

    Parameters
    ----------
    folder
        Where its store, its temporary files and its logs lie; nothing must be there.
    cache
        The compiled kernels; its own where ``None``.
    experiment
        Which.
    chance
        Where the fault draws from.
    private
        Whether this process has a mount namespace of its own: the run then changes a setting of the
        machine, of which it sees a copy.
    """

    def __init__(
        self,
        folder: Path,
        cache: Path | None,
        experiment: str,
        chance: random.Random,
        *,
        private: bool,
    ) -> None:
        self.folder, self.experiment, self.chance = folder, experiment, chance
        self.private = private
        self.home, self.scratch, self.here = folder / "home", folder / "tmp", folder / "cwd"
        self.cache = cache or folder / "cache"
        self.own_cache = cache is None  # else other cases compile into it
        for one in (self.home, self.scratch, self.here, self.cache):
            one.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.runs = self.home / "runs"
        self.environment = {
            **{name: value for name, value in os.environ.items() if "PERFLIB" not in name},
            "PERFLIB_HOME": str(self.home),
            "PERFLIB_CACHE": str(self.cache),
            "PERFLIB_CONFIG": "none",
            "PERFLIB_PROGRESS": "none",
            "TMPDIR": str(self.scratch),
        }
        self.words = [f"{key}={value}" for key, value in QUICK.get(experiment, {}).items()]
        self.words.append(f"budget_s={BUDGET_S:g}")
        self.launcher: list[str] = []  # what the command is started by
        self.limit_s = 120.0
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "said"
        self.settings: dict[Path, str] = {}
        self.undo: list[Callable[[], None]] = []
        if private:
            self._own_settings()

    # --- mounts that only this process and its children see ---------------------------------------

    def _own_settings(self) -> None:
        self._mount("-t", "tmpfs", "tmpfs", "/dev/shm")
        if _THP.exists():
            copy = self.folder / "thp"
            copy.write_text(_THP.read_text())
            self._mount("--bind", str(copy), str(_THP))
            other = "always" if read_setting(str(_THP)) != "always" else "madvise"
            self.words.append(f"settings=thp={other}")
            self.watch(_THP)

    def watch(self, setting: Path) -> str:
        """Expect of a setting, in the end, what it is now."""
        self.settings[setting] = read_setting(str(setting))
        return self.settings[setting]

    def small_disk(self, mib: int) -> None:
        """The store on a file system of its own."""
        self._mount("-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", str(self.home))

    def _mount(self, *words: str) -> None:
        subprocess.run(["mount", *words], check=True, capture_output=True)

        def undo() -> None:
            subprocess.run(["umount", "-l", words[-1]], check=True)

        self.undo.append(undo)

    # --- the shim ---------------------------------------------------------------------------------

    def preload(self, shim: Path) -> None:
        """Have the command see the clock and the disk through the shim."""
        self.shim(0, 0, 0)
        self.environment |= {
            "LD_PRELOAD": str(shim),
            "CHAOS_SHIM": str(self.folder / "shim"),
            "CHAOS_DISK": str(self.home),
        }

    def shim(self, clock_step_s: int, delay_us: int, error: int) -> None:
        """What the shim does from now on."""
        with (self.folder / "shim").open("r+b" if (self.folder / "shim").exists() else "wb") as out:
            out.write(struct.pack("qqq", clock_step_s, delay_us, error))

    # --- the command ------------------------------------------------------------------------------

    def argv(self, *words: str) -> list[str]:
        """A command of perflib."""
        return [*self.launcher, sys.executable, "-m", "perflib", *words]

    def popen(self, log: Path, *words: str) -> subprocess.Popen[bytes]:
        """Start a command; what it says goes to two files."""
        with log.with_suffix(".out").open("wb") as out, log.with_suffix(".err").open("wb") as err:
            return subprocess.Popen(
                self.argv(*words), env=self.environment, cwd=self.here, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip

    def start(self) -> None:
        """Start the run."""
        given = [part for word in self.words for part in ("-p", word)]
        self.process = self.popen(
            self.log, "run", self.experiment, "--preset", "quick", *given, "--json"
        )

    @property
    def pid(self) -> int:
        """The command's process."""
        assert self.process is not None
        return self.process.pid

    @property
    def over(self) -> bool:
        """Whether the command has ended."""
        assert self.process is not None
        return self.process.poll() is not None

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """Wait for something to be so while the command runs; whether it came."""
        while not self.over:
            if condition():
                return True
            time.sleep(_POLL_S)
        return False

    def listens(self) -> bool:
        """Whether the command has its handlers: before, signals end it as any program."""
        caught = int(fields(Path(f"/proc/{self.pid}/status")).get("SigCgt", "0"), 16)
        return bool(caught & 1 << (signal.SIGTERM - 1))

    def guards(self) -> list[int]:
        """The guards of the settings, of all that this process started."""
        return [pid for pid in family(os.getpid()) if _GUARD in _cmdline(pid)]

    def workers(self) -> list[int]:
        """What the command started, but for the guard."""
        guards = self.guards()
        return [pid for pid in family(self.pid)[1:] if pid not in guards and _cmdline(pid)]

    # --- what it has ------------------------------------------------------------------------------

    def journals(self) -> list[Path]:
        """The unfinished runs."""
        return sorted(self.runs.glob("*.journal")) if self.runs.is_dir() else []

    def held(self) -> Held:
        """What the journal holds now: whole lines."""
        for path in self.journals():
            with contextlib.suppress(FileNotFoundError):
                raw = path.read_bytes()
                lines = raw[: raw.rfind(b"\n") + 1].splitlines()
                records = [json.loads(line) for line in lines[1:]]
                return Held(path.stem, [one for one in records if "columns" in one])
        return Held()

    def saved(self) -> list[Path]:
        """The saved runs of the experiment."""
        return sorted(self.runs.glob(f"{self.experiment}-*.parquet"))

    # --- the end ----------------------------------------------------------------------------------

    def settle(self, process: subprocess.Popen[bytes], log: Path, allowed: Sequence[int]) -> str:
        """Wait for a command's end; what is wrong with how it ended, or nothing."""
        try:
            status = process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            where = Path(f"/proc/{process.pid}/wchan").read_text()
            for pid in family(process.pid):
                kill(pid)
            process.wait()
            return f"it hangs: no end within {self.limit_s:.0f} s ({where}); {tail(log)}"
        said = log.with_suffix(".err").read_text(errors="replace")
        if "Traceback (most recent call last)" in said:
            return f"a traceback: {_end_of_traceback(said)}"
        if status not in allowed:
            return f"exit status {status}: {tail(log)}"
        if status in (1, 2) and not any(
            line.startswith(("perflib:", "Error:")) for line in said.splitlines()
        ):
            return f"exit status {status} without a sentence: {tail(log)}"
        return ""

    def left(self, *, unfinished: bool) -> list[str]:
        """What is there that should not be; waits for what is about to end."""
        end = time.monotonic() + _LEAVE_S
        while (alive := _alive()) and time.monotonic() < end:
            time.sleep(0.05)
        found = [f"process {shlex.join(_cmdline(pid).split())[:120]}" for pid in alive]
        for pid in alive:
            kill(pid)
        _reap()
        places = {self.scratch: "*", self.here: "*"}
        if self.own_cache:
            places[self.cache] = ".building-*"
        places |= {self.home / "restore": "*.journal", self.runs: ".*"}
        if self.private:
            places[Path("/dev/shm")] = "*"
        for folder, pattern in places.items():
            found += [f"{folder.name}/{path.name}" for path in folder.glob(pattern)]
        if not unfinished:
            found += [f"runs/{path.name}" for path in self.journals()]
        for path, before in self.settings.items():
            if (now := read_setting(str(path))) != before:
                found.append(f"{path} is {now!r}, was {before!r}")
        return found

    def clear(self) -> None:
        """Undo what the fault did, and remove the folders."""
        for pid in _alive():
            kill(pid)
        _reap()
        for undo in reversed(self.undo):
            undo()
        shutil.rmtree(self.folder, ignore_errors=True)


def _alive() -> list[int]:
    """What this process started, or what that did, and still runs."""
    _reap()
    return [pid for pid in family(os.getpid())[1:] if not is_gone(pid)]


def _reap() -> None:
    """Wait for adopted children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """A signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _end_of_traceback(said: str) -> str:
    """Where it was raised, and what was."""
    lines = said.strip().splitlines()
    places = [line.strip() for line in lines if line.startswith("  File ")]
    return " / ".join([*places[-2:], lines[-1]])[:600]


def tail(log: Path) -> str:
    """The last that a command said."""
    lines = log.with_suffix(".err").read_text(errors="replace").strip().splitlines()
    return " / ".join(lines[-3:])[:400]


# --- what must hold of the saved run -------------------------------------------------------------


def schema(samples: pd.DataFrame) -> dict[str, str]:
    """The columns and their types; where values are missing, that they may be numbers or not."""
    return {str(name): str(samples[name].dtype) for name in samples}


def lost(held: Held, saved: pd.DataFrame | None) -> int:
    """How many rows that the journal held are not in the saved run, bit by bit."""
    expected = held.samples
    if saved is None or len(saved) < len(expected):
        return len(expected) - (0 if saved is None else len(saved))
    if expected.empty:
        return 0
    same = pd.Series(data=True, index=range(len(expected)))
    got = saved.iloc[: len(expected)].reset_index(drop=True)
    for name in expected:
        ours, theirs = _plain(expected[name]), _plain(got[name])
        same &= pd.Series([a == b for a, b in zip(ours, theirs, strict=True)])
    return int((~same).sum())


def _plain(column: pd.Series[Any]) -> list[Any]:
    return [None if value is None or value != value else value for value in column.tolist()]  # noqa: PLR0124


def unlike(reference: Mapping[str, Any], path: Path, *, may_lack: bool = False) -> list[str]:
    """How a saved run differs in form from an undisturbed one.

    ``may_lack``: trials may have been left out of rounds, if the run says that it has problems or
    had planned others, as one does that starts when a CPU is gone already.
    """
    run = run_files.load(path)
    wrong = []
    stopped = run.provenance["stopped"]
    ended_early = stopped in ("interrupted", "failed") or run.provenance["failed_trials"]
    here, there = schema(run.samples), reference["schema"]
    if more := here.keys() - there.keys():
        wrong.append(f"columns that no undisturbed run has: {sorted(more)}")
    if not ended_early and (fewer := there.keys() - here.keys()):
        wrong.append(f"columns are missing: {sorted(fewer)}")
    for name in here.keys() & there.keys():
        holes = run.samples[name].isna().any() or name in reference["holes"]
        if here[name] != there[name] and not holes:
            wrong.append(f"column {name} is {here[name]}, not {there[name]}")
    rounds = sorted(set(run.samples["round"].tolist()))
    if not ended_early and rounds != list(range(len(rounds))):
        wrong.append(f"rounds are missing: {rounds[:20]}")
    visited = run.experiment != _NOT_EVERY_ROUND
    another_plan = run.provenance["plan"] != reference["plan"]
    lacks_some = may_lack and (run.provenance["problems"] or another_plan)
    if visited and not ended_early and not lacks_some:
        wanted = set(reference["positions"])
        for number, group in run.samples.groupby("round"):
            if missing := wanted - set(group["position"].tolist()):
                wrong.append(f"round {number} lacks the trials at {sorted(missing)}")
                break
    return wrong


def described(path: Path, wall_s: float, trials: int) -> dict[str, Any]:
    """An undisturbed run, as the others are compared with it."""
    run = run_files.load(path)
    samples = run.samples
    positions = [set(group["position"].tolist()) for _, group in samples.groupby("round")]
    return {
        "plan": run.provenance["plan"],
        "schema": schema(samples),
        "holes": [str(name) for name in samples if samples[name].isna().any()],
        "positions": sorted(set.intersection(*positions)),
        "wall_s": wall_s,
        "trials": trials,
    }
