"""Two users of one machine, root and an ordinary one: nothing of one is in the other's way.

Their temporary files share a folder that is open to all, as /tmp is, and the umask takes nothing
away.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.users import ORDINARY, as_ordinary, needs_two_users

QUICK = ["-p", "budget_s=1", "-p", "cores=0", "--json"]


@dataclass(frozen=True)
class User:
    number: int
    home: Path
    environment: dict[str, str]

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "perflib", *words]
        return subprocess.Popen(
            as_ordinary(argv) if self.number else argv,
            env=self.environment | variables,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            umask=0,
        )


@pytest.fixture
def users() -> Iterator[tuple[User, User]]:
    """Root and the other, each with a home, under one folder for temporary files."""
    needs_two_users()
    top = Path(tempfile.mkdtemp(prefix="perflib-users-"))
    try:
        top.chmod(0o755)
        (top / "tmp").mkdir()
        (top / "tmp").chmod(0o1777)
        yield user(top, 0), user(top, ORDINARY)
    finally:
        shutil.rmtree(top)


def user(top: Path, number: int) -> User:
    home = top / f"home-{number}"
    home.mkdir(mode=0o755)
    os.chown(home, number, number)
    environment = {
        "HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(top / "tmp"),
        "PERFLIB_PROGRESS": "none", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    return User(number, home, environment)


def answer(process: subprocess.Popen[str]) -> dict[str, str]:
    out, complaints = process.communicate(timeout=200)
    assert process.returncode == 0, complaints
    found: dict[str, str] = json.loads(out)
    return found


def refused(process: subprocess.Popen[str]) -> str:
    """The one sentence that a user gets, with the exit status of a wrong request."""
    out, complaints = process.communicate(timeout=200)
    assert (process.returncode, out) == (2, ""), complaints
    assert "Traceback" not in complaints
    return complaints


def files(folder: Path) -> dict[Path, os.stat_result]:
    return {path: path.lstat() for path in [folder, *folder.rglob("*")]}


def test_both_measure_one_after_the_other_and_at_once(users: tuple[User, User]) -> None:
    runs = [answer(one.start("run", "machine", *QUICK)) for one in users]
    both = [one.start("run", "kv_per_core", *QUICK) for one in users]
    runs += [answer(process) for process in both]
    assert len({run["run"] for run in runs}) == 4
    for one in users:
        kept = files(one.home)
        names = [path.name for path in kept]
        assert sum(name.endswith(".parquet") for name in names) == 2
        assert any(name.endswith(".so") for name in names)
        for path, status in kept.items():
            assert status.st_uid == one.number, path
            assert not stat.S_ISLNK(status.st_mode), path
            assert not status.st_mode & 0o022, f"{path} can be written by others"
    assert list((users[0].home.parent / "tmp").iterdir()) == []


@pytest.mark.parametrize("first", ["root", "ordinary"])
def test_neither_loads_what_the_other_compiled(users: tuple[User, User], first: str) -> None:
    one, other = users if first == "root" else users[::-1]
    shared = one.home.parent / "tmp" / "cache"
    answer(one.start("run", "machine", *QUICK, PERFLIB_CACHE=str(shared)))
    compiled = files(shared)
    said = refused(other.start("run", "machine", *QUICK, PERFLIB_CACHE=str(shared)))
    assert "PERFLIB_CACHE" in said
    assert files(shared).keys() == compiled.keys()


def test_a_planted_cache_is_not_followed(users: tuple[User, User]) -> None:
    """A link in the shared folder, to where its owner may write and the victim, too."""
    root, ordinary = users
    planted = root.home.parent / "tmp" / "planted"
    target = ordinary.home / "target"
    target.mkdir()
    planted.symlink_to(target)
    os.chown(planted, ORDINARY, ORDINARY, follow_symlinks=False)
    said = refused(root.start("run", "machine", *QUICK, PERFLIB_CACHE=str(planted)))
    assert str(planted) in said
    assert list(target.iterdir()) == []


def test_the_ordinary_user_cannot_write_into_root_s_runs(users: tuple[User, User]) -> None:
    root, ordinary = users
    shared = root.home.parent / "tmp" / "home"
    run = answer(root.start("run", "machine", *QUICK, PERFLIB_HOME=str(shared)))
    before = files(shared)
    process = ordinary.start("run", "machine", *QUICK, PERFLIB_HOME=str(shared))
    _, complaints = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "Traceback" not in complaints
    assert "journal cannot be made" in complaints
    assert files(shared).keys() == before.keys()
    shown = ordinary.start("show", run["run"], PERFLIB_HOME=str(shared))
    assert shown.communicate(timeout=200)[0]  # but read them
    assert shown.returncode == 0


def test_root_puts_no_setting_back_that_another_user_wrote_down(users: tuple[User, User]) -> None:
    """The list of settings to put back names files of the system and what goes into them."""
    root, ordinary = users
    victim = root.home / "victim"
    victim.write_text("kept")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    restore = ordinary.home / "data" / "restore"
    restore.mkdir(parents=True)
    lines = [{"pid": 1, "host": "x"}, {"path": str(victim), "old": "harm", "new": "kept"}]
    (restore / f"{boot}.journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in files(ordinary.home):
        os.chown(path, ORDINARY, ORDINARY)
    process = root.start("run", "machine", *QUICK, PERFLIB_HOME=str(restore.parent))
    _, complaints = process.communicate(timeout=200)
    assert victim.read_text() == "kept"
    assert "Traceback" not in complaints
    assert (restore / f"{boot}.journal").exists()
