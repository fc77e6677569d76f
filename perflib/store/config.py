"""What configuration files say: ``perflib.toml`` of the project, and of the user.

What counts, first to last: the command line, the environment (``PERFLIB_*``), the project's file
(in the current folder or the nearest folder above it), the user's file, what is built in.

A project's file may come from anywhere, with a checkout or an archive. So it can neither run nor
load anything: runs stay below its own folder, and parameters that are text stay the user's.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs

from perflib.model.errors import UserError, choose
from perflib.store.paths import data_dir

NAME = "perflib.toml"
BUILT_IN = "built in"
MODES = ("bar", "log", "none")
_KEYS = ("store", "progress", "defaults", "presets")


class Given(NamedTuple):
    """A value, and who gave it: a variable, a file, or ``BUILT_IN``."""

    value: Any
    origin: str


class Parameters(NamedTuple):
    """Parameters by name, as one table of a file has them."""

    values: Mapping[str, Any]
    origin: str
    trusted: bool


class File(NamedTuple):
    """A configuration file that counts; ``trusted`` where it is the user's own."""

    path: Path
    trusted: bool
    content: Mapping[str, Any]

    def __str__(self) -> str:
        return str(self.path)


def user_path() -> Path:
    """The place of the user's file, if there is one."""
    return platformdirs.user_config_path("perflib") / NAME


def files() -> list[File]:
    """The files that count, the stronger first.

    Raises
    ------
    UserError
        One cannot be read, or holds what is unknown or of the wrong type.
    """
    wish = os.environ.get("PERFLIB_CONFIG", "")
    if wish == "none":
        return []
    if wish and not Path(wish).is_file():
        msg = f"PERFLIB_CONFIG: there is no file {wish}"
        raise UserError(msg)
    project, user = Path(wish).absolute() if wish else project_path(), user_path()
    found = [_read(project, trusted=False)] if project and project != user else []
    return found + ([_read(user, trusted=True)] if user.is_file() else [])


def project_path() -> Path | None:
    """The project's file: here or above; not one that another user, but root, could have put."""
    try:
        here = Path.cwd()
    except OSError:  # the folder was removed
        return None
    for folder in (here, *here.parents):
        path = folder / NAME
        try:
            states = path.lstat(), path.stat()  # of a link, and of where it leads
        except OSError:
            continue
        ours = all(state.st_uid in (os.geteuid(), 0) for state in states)
        if ours and stat.S_ISREG(states[1].st_mode) and not states[1].st_mode & stat.S_IWOTH:
            return path
    return None


def _read(path: Path, *, trusted: bool) -> File:
    try:
        return _parsed(path, trusted, path.read_bytes())
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise UserError(msg) from error


@lru_cache(maxsize=16)
def _parsed(path: Path, trusted: bool, raw: bytes) -> File:
    try:
        content = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        msg = f"{path} is no TOML: {why}"
        raise UserError(msg) from error
    for problem in _problems(path, trusted, content):
        msg = f"{path}: {problem}"
        raise UserError(msg)
    return File(path, trusted, content)


def _problems(path: Path, trusted: bool, content: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong, a sentence each."""
    yield from (choose("key", key, _KEYS) for key in content if key not in _KEYS)
    if "store" in content:
        yield from _store_problems(path, trusted, content["store"])
    mode = content.get("progress", "log")
    if not isinstance(mode, str) or mode not in MODES:
        yield f"progress: {choose('word', str(mode), MODES)}"
    for key, depth, form in (
        ("defaults", 1, "[defaults.EXPERIMENT]"),
        ("presets", 2, "[presets.PRESET.EXPERIMENT]"),
    ):
        yield from _shape(content.get(key, {}), key, depth, form)


def _store_problems(path: Path, trusted: bool, store: Any) -> Iterator[str]:
    """A project's runs stay in its folder; the user's are wherever the user is working."""
    if not isinstance(store, str) or not store or "\0" in store:
        yield f'store: {store!r} is no folder: write store = "FOLDER"'
    elif trusted and not Path(store).expanduser().is_absolute():
        yield f"store: {store!r} is relative: write an absolute path, or ~/{store}"
    elif not trusted and not (path.parent / store).resolve().is_relative_to(path.parent.resolve()):
        yield f"store: {store!r} is outside the project's folder; only {user_path()} may say that"


def _shape(table: Any, name: str, depth: int, form: str) -> Iterator[str]:
    """Tables within tables, so many times."""
    if not isinstance(table, dict):
        yield f"{name}: {table!r} is no table: write {form}, and below it NAME = VALUE"
    elif depth:
        for key, inner in table.items():
            yield from _shape(inner, f"{name}.{key}", depth - 1, form)


# --- single values -------------------------------------------------------------------------------


def runs_dir() -> Given:
    """The folder of the runs and their journals."""
    if os.environ.get("PERFLIB_HOME"):
        return Given(data_dir() / "runs", "PERFLIB_HOME")
    for file in files():
        if "store" in file.content:
            folder = file.path.parent / Path(file.content["store"]).expanduser()
            return Given(folder, f"{file}, store")
    return Given(data_dir() / "runs", BUILT_IN)


def progress() -> Given | None:
    """How progress is to be shown: one of ``MODES``; ``None``: as it fits.

    Raises
    ------
    UserError
        ``PERFLIB_PROGRESS`` is another word.
    """
    if wish := os.environ.get("PERFLIB_PROGRESS"):
        if wish not in MODES:
            msg = f"PERFLIB_PROGRESS: {choose('word', wish, MODES)}"
            raise UserError(msg)
        return Given(wish, "PERFLIB_PROGRESS")
    for file in files():
        if "progress" in file.content:
            return Given(file.content["progress"], f"{file}, progress")
    return None


# --- parameters ----------------------------------------------------------------------------------


def defaults(experiment: str) -> list[Parameters]:
    """What the files have in place of an experiment's defaults, the weaker first."""
    return [
        Parameters(found, f"{file}, [defaults.{experiment}]", file.trusted)
        for file in reversed(files())
        if (found := file.content.get("defaults", {}).get(experiment))
    ]


def presets(experiment: str) -> dict[str, list[Parameters]]:
    """The presets that the files have for an experiment, by name; the weaker file first."""
    found: dict[str, list[Parameters]] = {}
    for file in reversed(files()):
        for name, by_experiment in file.content.get("presets", {}).items():
            if experiment in by_experiment:
                origin = f"{file}, [presets.{name}.{experiment}]"
                one = Parameters(by_experiment[experiment], origin, file.trusted)
                found.setdefault(name, []).append(one)
    return found


def check_experiments(names: Iterable[str]) -> None:
    """Compare the experiments that the files name with those there are.

    Raises
    ------
    UserError
        There is none of a name; the nearest is given.
    """
    known = list(names)
    for file in files():
        tables = {"defaults": file.content.get("defaults", {})}
        for preset, by_experiment in file.content.get("presets", {}).items():
            tables[f"presets.{preset}"] = by_experiment
        for table, by_experiment in tables.items():
            for name in by_experiment:
                if name not in known:
                    msg = f"{file}, [{table}.{name}]: {choose('experiment', name, known)}"
                    raise UserError(msg)
