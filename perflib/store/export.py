"""Runs as files for somebody else; without names, paths and command lines where that is wanted."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from perflib.model.errors import MeasurementError, PerflibError, UserError
from perflib.model.escape import file_name
from perflib.model.recorded import change_texts, is_fixed, names_of_user, row_of
from perflib.model.run import Run, host_of
from perflib.store import run_files
from perflib.store.files import replacing
from perflib.store.formats import METRICS, Part, parts

_COMMANDS = ("job_command", "other_command", "relink")  # parameters
_USERS_HOME = re.compile(r"/(?:home|Users|(?:afs|eos)(?:/[\w.-]+)?/(?:user|home)/\w)/([\w.-]+)")
_PATH = re.compile(
    r"(?P<address>https?://[^\s'\"]+)"
    r"|(?P<before>^|[^\w./~$-]|(?<![\w-])-[A-Za-z])(?P<path>~?/+[^\s/'\",;()\[\]<>|:]"
    r"(?:\\ |[^\s'\",;()\[\]<>|:])*)"
)
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<path>~?/[^'\"\n]+)(?P=quote)")
# What a distribution or the kernel placed there: it names no one.
_OF_THE_SYSTEM = re.compile(
    r"(?!.*\.\.)/(?:usr/(?!local|home|src)|lib(?:32|64)?/|s?bin/|proc/sys/|sys/(?!fs/cgroup))"
    r"[\w.+/-]*"
)
_LEAST_WORD = 3  # letters of a word of a command line that may not stand anywhere else
_COMM = 15  # characters that the kernel keeps of a process's name
# Names, and words of command lines, that identify nobody and may mean something in a run.
_NOBODYS = {
    "admin", "all", "bash", "command", "counted", "default", "guest", "host", "kernel", "localhost",
    "machine", "node", "none", "perf", "perflib", "preload", "program", "python", "random", "root",
    "running", "states", "sudo", "test", "time", "user",
}  # fmt: skip


def export(
    names: Iterable[str],
    folder: Path,
    *,
    anonymous: bool = False,
    form: str = "run",
    report: Callable[[Run], Mapping[str, str]] | None = None,
) -> list[Path]:
    """Copy saved runs into a folder.

    Parameters
    ----------
    names
        Runs as `run_files.find` finds them.
    folder
        Made if it is not there; nothing in it is replaced but metrics, which are always the newest.
    anonymous
        Without names of hosts and users, paths and command lines: see `Anonymous`.
    form
        ``run``: the runs' files; others: see `perflib.store.formats`.
    report
        What the analysis says of a run (`Experiment.reported`). Without it anonymous runs are
        copied without findings, as those of the original hold names.

    Raises
    ------
    UserError
        There is no such run, or a file of its name; nothing was written.
    MeasurementError
        A run is damaged, or the folder cannot be written.
    """
    import duckdb

    paths = dict.fromkeys(run_files.find(name) for name in names)
    runs = [run_files.load(path) for path in paths]
    if anonymous:
        nobody = Anonymous()
        runs = [nobody.run(one) for one in runs]
    if len({one.id for one in runs}) < len(runs):
        msg = "two of these files are of one run: name each run once"
        raise UserError(msg)
    if form == "run":
        files = {
            f"{file_name(one.id)}.parquet": _copied(one, path, anonymous, report)
            for one, path in zip(runs, paths, strict=True)
        }
    elif report is None:
        msg = f"format {form!r} needs the findings"
        raise UserError(msg)
    else:
        files = parts(form, runs, report)
    targets = [folder / name for name in files]
    if there := [str(one) for one in targets if one.exists() and one.name != METRICS]:
        msg = f"there is {', '.join(there)} already: name another folder, or remove it"
        raise UserError(msg)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for target, write in zip(targets, files.values(), strict=True):
            with replacing(target) as temporary:
                write(temporary)
    except FileExistsError as error:
        msg = f"{folder} is no folder: name another --out"
        raise UserError(msg) from error
    except (OSError, duckdb.Error) as error:
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        msg = f"the runs cannot be copied to {folder}: {why}"
        raise MeasurementError(msg) from error
    return targets


def _copied(
    run: Run, path: Path, anonymous: bool, report: Callable[[Run], Mapping[str, str]] | None
) -> Part:
    """What writes a run's file: byte by byte, or anew where it is another run now."""
    if not anonymous:
        return lambda target: _copy(path, target)
    reported: Mapping[str, str] = {}
    with contextlib.suppress(PerflibError):  # a run that cannot be analysed is copied without
        reported = report(run) if report is not None else {}
    return lambda target: run_files.write_run(run, target, reported)


def _copy(path: Path, target: Path) -> None:
    shutil.copyfile(path, target)


class Anonymous:
    """Makes runs anonymous; the same machine, user, path or job has one placeholder in all.

    ``host-1``, ``user-1``, ``path-1``, ``job-1`` and ``process-1`` stand for what is taken out, in
    texts of any place, too. What a simulation of yours or the job calls its functions and threads
    stays, as do times, the processor and the system's versions: an anonymous run can be analysed.
    """

    def __init__(self) -> None:
        self._placeholders: dict[str, dict[Any, str]] = {}
        self._words: dict[str, str] = {}  # that may not stand anywhere, in lower case
        for name in sorted(names_of_user()[1]):
            self._forbid({name}, self._placeholder("user", name))

    def _placeholder(self, kind: str, original: Any) -> str:
        known = self._placeholders.setdefault(kind, {})
        return known.setdefault(original, f"{kind}-{len(known) + 1}")

    def run(self, run: Run) -> Run:
        """The run without what identifies its owner, and where it was measured."""
        machine = run.provenance.get("machine") or {}
        name = str(machine.get("hostname") or "")
        host = self._placeholder("host", (name, machine.get("machine_id")))
        before = dict(self._words)
        self._learn(run, name, host)
        longest_first = sorted(self._words, key=len, reverse=True)
        words = "|".join(map(re.escape, longest_first)) or "(?!)"
        self._pattern = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE)
        parts = run.id.split("-")
        if host_of(run.id):
            parts[3] = host.replace("-", "")
        made = replace(
            run,
            id="-".join(parts),
            params={name: self._value(value, None, "") for name, value in run.params.items()},
            provenance=self._value(run.provenance, (), host),
            samples=change_texts(run.samples, self.text),
        )
        self._words = before  # a host's name means this host in this run alone
        return made

    def _learn(self, run: Run, name: str, host: str) -> None:
        """The words that may not stand anywhere in a run."""
        self._forbid({name, name.partition(".")[0], host_of(run.id)}, host)
        for key in _COMMANDS:
            if command := run.params.get(key):
                self._forbid({command, *_words_of(command)}, self._placeholder("job", command))
        for tasks in (run.provenance.get("tasks") or {}).values():
            for task in tasks:
                self._forbid({task["name"]}, self._placeholder("process", task["name"]))
        log = run.params.get("job_log")
        given = {key: run.params[key] for key in run.params if not key.startswith("job_")}
        for text in _texts([given, log]):
            if "/" in text or text == log != "":  # a relative path, too
                self._forbid({text, Path(text).name}, self._placeholder("path", text))
        for text in _texts([run.params, run.provenance]):
            for user in _USERS_HOME.findall(text):
                self._forbid({user}, self._placeholder("user", user))

    def _forbid(self, words: Iterable[str], placeholder: str) -> None:
        for word in words:
            if len(word) > 1 and word.lower() not in _NOBODYS:
                self._words.setdefault(word.lower(), placeholder)

    def _value(self, value: Any, place: tuple[str, ...] | None, host: str) -> Any:
        """A value of the provenance; ``place`` is none where all keys are the run's own."""
        row = row_of(place) if place else None
        if row is not None and row.anonymous and value:
            if row.anonymous == "left out":
                return "" if isinstance(value, str) and place == ("tag",) else None
            return host if row.anonymous == "host" else self._placeholder(row.anonymous, value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self._value(inner, place, host) for inner in value]
        if isinstance(value, Mapping):
            found = {}
            for key, inner in value.items():
                here = (*place, key) if place is not None else None
                known = here is not None and is_fixed(here)
                found[key if known else self.text(key)] = self._value(inner, here, host)
            return found
        return value

    def text(self, text: str) -> str:
        """A text without paths and names."""
        text = self._pattern.sub(lambda found: self._words[found[0].lower()], text)
        if re.match(r"~?/[^\n]*$", text):
            return self._path(text)
        text = _QUOTED.sub(
            lambda found: found["quote"] + self._path(found["path"]) + found["quote"], text
        )
        return _PATH.sub(
            lambda found: found["address"] or found["before"] + self._path(found["path"]), text
        )

    def _path(self, path: str) -> str:
        return path if _OF_THE_SYSTEM.fullmatch(path) else self._placeholder("path", path)


def _texts(value: Any) -> list[str]:
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    change_texts(value, note)
    return found


def _words_of(command: str) -> set[str]:
    """The words of a command line that identify it: no options, no placeholders."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    pieces = {piece for word in words for piece in (word, word.rpartition("=")[2])}
    pieces |= {Path(piece).name for piece in pieces}
    pieces |= {piece[:_COMM] for piece in pieces}
    return {
        piece
        for piece in pieces
        if len(piece) >= _LEAST_WORD and not re.search(r"^-|[{}]|^[\d.]+$", piece)
    }
