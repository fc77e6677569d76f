"""Two revisions of a repository, built in worktrees that are gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from perflib.measure.revisions import built, revisions
from perflib.model.errors import MeasurementError, UserError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    argv = ["git", *who, *words]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    for text in ("one", "two"):
        (folder / "source").write_text(f"#!/bin/sh\necho {text}\n")
        git(folder, "add", "source")
        git(folder, "commit", "-m", text)
    monkeypatch.chdir(folder)
    return folder


def test_each_side_is_a_commit(repository: Path) -> None:
    a, b = revisions("HEAD~1..HEAD")
    assert (a.commit, b.commit) == tuple(git(repository, "log", "--format=%H").split()[::-1])
    assert revisions("HEAD~1..") == (a, b)
    git(repository, "checkout", "-b", "side", "HEAD~1")
    git(repository, "commit", "--allow-empty", "-m", "aside")
    parted, _ = revisions("main...side")
    assert parted.commit == a.commit


@pytest.mark.parametrize(
    ("range_", "why"),
    [
        ("HEAD", "is no range"),
        ("a..b..c", "is no range"),
        ("HEAD~9..HEAD", "'HEAD~9' is no commit"),
        ("--help..HEAD", "'--help' is no commit"),
        ("HEAD..HEAD", "nothing to compare"),
    ],
)
def test_a_range_that_does_not_resolve(repository: Path, range_: str, why: str) -> None:
    assert repository.is_dir()
    with pytest.raises(UserError, match=why):
        revisions(range_)


def test_outside_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="not a git repository"):
        revisions("a..b")


@pytest.mark.parametrize(
    ("line", "program", "expected"),
    [
        ("cp source job; chmod +x job", "", "job"),
        ("mkdir bin; cp source bin/x; chmod +x bin/x; : bin/x", "", "bin/x"),
        ("cp source a; cp source b; chmod +x a b; :", "b", "b"),
    ],
)
def test_the_program_that_is_built(
    repository: Path, tmp_path: Path, line: str, program: str, expected: str
) -> None:
    a, _ = revisions("HEAD~1..HEAD")
    with built(a, line, program, tmp_path / "A") as path:
        assert path == tmp_path / "A" / expected
        assert "one" in path.read_text()
    assert not (tmp_path / "A").exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "program", "why"),
    [
        ("echo no rule >&2; exit 2", "", "ended with status 2; its last line: no rule"),
        ("true", "", "made none: name it with --program"),
        ("cp source a; cp source b; chmod +x a b; :", "", "made a, b: name it"),
        ("true", "job", "made no program 'job'"),
    ],
)
def test_a_build_that_fails(
    repository: Path, tmp_path: Path, line: str, program: str, why: str
) -> None:
    a, _ = revisions("HEAD~1..HEAD")
    with (
        pytest.raises((UserError, MeasurementError), match=why),
        built(a, line, program, tmp_path / "A"),
    ):
        pass
    assert not (tmp_path / "A").exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
