"""Two revisions of a Git repository, each built in a temporary worktree of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perflib.model.errors import MeasurementError, UserError

_BUILD_TIMEOUT_S = 3600
_LISTED = 6  # programs that an error names
_RANGE = re.compile(r"(?P<first>(?:(?!\.\.).)*)(?P<dots>\.\.\.?)(?P<second>(?:(?!\.\.).)*)")


class Revision(NamedTuple):
    """One side of a range: as it was written, its commit, and the repository's top."""

    name: str
    commit: str
    top: Path


def revisions(range_: str) -> tuple[Revision, Revision]:
    """Both sides of ``main..HEAD``; of ``main...HEAD``, from where the two have parted.

    Raises
    ------
    UserError
        It is no range, a side is no commit, there is no Git or no repository, or both sides are
        one commit.
    """
    found = _RANGE.fullmatch(range_)
    if found is None:
        msg = f"--git {range_!r} is no range: write two revisions as main..HEAD"
        raise UserError(msg)
    top = Path(_git(Path(), "rev-parse", "--show-toplevel"))
    names = found["first"] or "HEAD", found["second"] or "HEAD"
    commits = []
    for name in names:
        wrong = f"--git {range_!r}: {name!r} is no commit of {top} (git log --oneline shows them)"
        verify = ("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        commits.append(_git(top, *verify, wrong=wrong))
    if found["dots"] == "...":
        wrong = f"--git {range_!r}: the two have no commit in common"
        commits[0] = _git(top, "merge-base", *commits, wrong=wrong)
    if commits[0] == commits[1]:
        msg = f"--git {range_!r}: both are commit {commits[0][:12]}: there is nothing to compare"
        raise UserError(msg)
    a, b = (Revision(name, commit, top) for name, commit in zip(names, commits, strict=True))
    return a, b


@contextlib.contextmanager
def built(revision: Revision, line: str, program: str, folder: Path) -> Iterator[Path]:
    """A revision's program in a worktree, as long as the ``with`` block lasts.

    ``line`` builds it, by a shell in ``folder``, the worktree, which does not exist before.
    ``program``: where it is then; empty: what the line's last word names, or all that it made.

    Raises
    ------
    MeasurementError
        The build failed.
    UserError
        It cannot be checked out; the build made no program, or several.
    """
    _git(revision.top, "worktree", "add", "--detach", "--quiet", str(folder), revision.commit)
    try:
        _build(revision, line, folder)
        yield _program(revision, line, program, folder)
    finally:
        with contextlib.suppress(UserError):
            _git(revision.top, "worktree", "remove", "--force", str(folder))


def _build(revision: Revision, line: str, folder: Path) -> None:
    what = f"the build of {revision.name} ({revision.commit[:12]}), {line!r},"
    try:
        answer = subprocess.run(
            ["/bin/sh", "-c", line], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", check=False, timeout=_BUILD_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        msg = f"{what} did not end within {_BUILD_TIMEOUT_S} s"
        raise MeasurementError(msg) from None
    if answer.returncode:
        said = (answer.stderr.strip() or answer.stdout.strip() or "(nothing)").splitlines()
        msg = f"{what} ended with status {answer.returncode}; its last line: {said[-1]}"
        raise MeasurementError(msg)


def _program(revision: Revision, line: str, program: str, folder: Path) -> Path:
    last = shlex.split(line)[-1] if not program and line.strip() else program
    if last and _is_program(folder / last):
        return folder / last
    if program:
        msg = f"the build of {revision.name} made no program {program!r} (--program)"
        raise UserError(msg)
    made = _git(folder, "ls-files", "--others", "-z").split("\0")
    found = sorted(name for name in made if name and _is_program(folder / name))
    if len(found) == 1:
        return folder / found[0]
    shown = ", ".join(found[:_LISTED]) or "none"
    msg = f"which program? The build of {revision.name} made {shown}: name it with --program"
    raise UserError(msg)


def _is_program(path: Path) -> bool:
    """An executable file; libraries are executable, too, but no program."""
    return path.is_file() and os.access(path, os.X_OK) and ".so" not in path.suffixes


def _git(folder: Path, *words: str, wrong: str = "") -> str:
    """What a command of Git prints; ``wrong``: the sentence where it fails."""
    argv = ["git", "-C", str(folder), *words]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        msg = "git is not installed, or not on PATH: --git needs it"
        raise UserError(msg) from error
    if answer.returncode:
        said = (answer.stderr.strip() or "(nothing)").splitlines()[-1]
        raise UserError(wrong or f"git {words[0]} failed: {said}")
    return answer.stdout.strip("\n")
