"""Runs from elsewhere into this store: another machine's, another user's, a farm's.

They are as foreign as any file: each is read, and its samples are checked by its experiment's
schema, before it is copied, byte by byte. Nothing in the store is ever replaced.
"""

from __future__ import annotations

import contextlib
import filecmp
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perflib.experiments import get
from perflib.model.errors import MeasurementError, PerflibError
from perflib.store import run_files
from perflib.store.files import replacing
from perflib.store.ownership import check_writable, make_folder
from perflib.store.reading import read_run

if TYPE_CHECKING:
    import duckdb

    from perflib.framework.experiment import Experiment

_MOST_WORKERS, _WORTH_A_WORKER = 4, 100  # files; a process takes a second to start
_UNFINISHED = re.compile(r"\..+\.parquet\.[0-9a-f]{8}")
_UNFINISHED_S = 3600.0  # no copy takes so long


@dataclass(frozen=True)
class Imported:
    """What became of a file.

    Parameters
    ----------
    path
        The file, as it was found.
    run
        The run's id; empty where the file is none.
    state
        ``imported``; ``there already``: the store has the same file; or ``refused``.
    reason
        Why it was refused; of an imported one, what was left behind.
    """

    path: Path
    run: str
    state: Literal["imported", "there already", "refused"]
    reason: str = ""


def import_runs(
    paths: Iterable[Path], progress: Callable[[int, int], None] | None = None
) -> list[Imported]:
    """Copy runs into the store: what can be is, and the rest has a reason.

    Parameters
    ----------
    paths
        Files, folders of files, or stores (folders with a folder ``runs``).
    progress
        Called with how many files are done, and how many there are.

    Returns
    -------
    One entry a file; one for a path without any.

    Raises
    ------
    UserError
        Another user could exchange what is in the store.
    MeasurementError
        The store cannot be written. What was imported before stays; once there is room, the same
        call imports the rest.
    """
    found = [one for path in paths for one in _files(path)]
    folder = run_files.runs_dir()
    check_writable(folder)
    _remove_unfinished(folder)
    files = [one for one in found if isinstance(one, Path)]
    workers = min(_MOST_WORKERS, len(os.sched_getaffinity(0)), len(files) // _WORTH_A_WORKER)
    outcomes: list[Imported] = []
    with contextlib.closing(_by_workers(files, workers) if workers > 1 else _here(files)) as made:
        for one in found:
            outcomes.append(next(made) if isinstance(one, Path) else one)
            if progress is not None:
                progress(len(outcomes), len(found))
    return outcomes


def _remove_unfinished(folder: Path) -> None:
    """Remove what an import left that was killed; the copies of one that is running are new."""
    if not folder.is_dir():
        return
    oldest = time.time() - _UNFINISHED_S
    for left in folder.iterdir():
        if _UNFINISHED.fullmatch(left.name):
            with contextlib.suppress(OSError):
                if left.lstat().st_mtime < oldest:
                    left.unlink()


def _here(files: Iterable[Path]) -> Generator[Imported]:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        for one in files:
            yield _imported(one, connection)


def _by_workers(files: Sequence[Path], count: int) -> Generator[Imported]:
    """The same by processes of their own: to check samples keeps one core busy."""
    workers = [_Worker(files[number::count]) for number in range(count)]
    try:
        for number, path in enumerate(files):
            line = workers[number % count].line()
            if not line:  # it was killed, of want of memory perhaps
                yield from _here([path])
                continue
            said = json.loads(line)
            if "failed" in said:
                raise MeasurementError(said["failed"])
            yield Imported(path, **said)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that imports some files, and says of each what became of it."""

    def __init__(self, files: Sequence[Path]) -> None:
        argv = [sys.executable, "-P", "-m", __name__]  # -P: nothing from the current folder
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        # One that has ended already shows when its lines are read.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as given:
            json.dump([str(path) for path in files], given)

    def line(self) -> str:
        """The next line; empty: it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()
        with self._process:
            pass


def _work() -> None:
    """A worker: paths on standard input, a line of JSON for each on standard output."""
    try:
        for one in _here(map(Path, json.load(sys.stdin))):
            said = {"run": one.run, "state": one.state, "reason": one.reason}
            print(json.dumps(said), flush=True)
    except MeasurementError as error:
        print(json.dumps({"failed": str(error)}), flush=True)


def _files(path: Path) -> list[Path | Imported]:
    """What a path names: files to be looked at, and why what else is there is not."""
    if not path.is_dir():
        if path.suffix == ".journal":
            return [_journal(path)]
        return [path] if path.exists() else [_refused(path, "there is no such file or folder")]
    try:
        inside = sorted(one for folder in (path, path / "runs") for one in _listed(folder))
    except OSError as error:
        return [_refused(path, f"it cannot be read: {error.strerror}")]
    found: list[Path | Imported] = []
    for one in inside:
        if one.suffix == ".parquet":
            found.append(one)
        elif one.suffix == ".journal" and not one.with_suffix(".parquet").exists():
            found.append(_journal(one))
    return found or [_refused(path, "it holds no run's file, NAME.parquet, nor a folder 'runs'")]


def _listed(folder: Path) -> list[Path]:
    """What is in a folder; hidden files are unfinished ones."""
    if not folder.is_dir():
        return []
    return [one for one in folder.iterdir() if not one.name.startswith(".")]


def _refused(path: Path, reason: str, run: str = "") -> Imported:
    return Imported(path, run, "refused", reason)


def _journal(path: Path) -> Imported:
    why = "it is an unfinished run's journal: only the machine that measured it can finish it"
    return _refused(path, f"{why} ('perflib run --resume {path.stem}')", path.stem)


def _imported(path: Path, connection: duckdb.DuckDBPyConnection) -> Imported:
    try:
        run = read_run(path, connection)
        experiment = get(run.experiment)
        _check_params(experiment, json.dumps(run.params))
        experiment.check_samples(run.samples)
    except PerflibError as error:
        return _refused(path, str(error))
    target = run_files.saved_path(run.id)
    try:
        if not target.exists():
            make_folder(target.parent)
            try:
                with replacing(target, only_new=True) as temporary:
                    shutil.copyfile(path, temporary)
            except FileExistsError:  # somebody else was faster
                pass
            else:
                return Imported(path, run.id, "imported", _left_behind(run.provenance))
        if filecmp.cmp(path, target, shallow=False):
            return Imported(path, run.id, "there already")
    except OSError as error:
        msg = f"{path} cannot be imported to {target}: {error.strerror or error}"
        raise MeasurementError(msg) from error
    why = f"the store has another file of this run, {target}, and replaces none"
    return _refused(path, f"{why}: see which one you want, and remove the other", run.id)


@functools.lru_cache(maxsize=64)
def _check_params(experiment: Experiment, params: str) -> None:
    """Parameters as `Experiment.current` takes them; a farm's runs share theirs."""
    experiment.current_params(json.loads(params))


def _left_behind(provenance: dict[str, object]) -> str:
    return "its recordings of threads were left behind" if provenance.get("recordings") else ""


if __name__ == "__main__":
    _work()
