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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


# --- what a stranger put, or could exchange ------------------------------------------------------


def of_ordinary(*paths: Path) -> None:
    for path in paths:
        os.chown(path, ORDINARY, ORDINARY, follow_symlinks=False)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["folder above", "link above", "owner above"])
def test_a_cache_that_another_could_exchange_is_not_used(users: tuple[User, User], by: str) -> None:
    """The cache itself is root's alone, but not the way to it."""
    root, _ = users
    above = root.home / "above"
    cache = above / "cache"
    cache.mkdir(parents=True)
    cache.chmod(0o700)
    named = cache
    if by == "folder above":
        above.chmod(0o777)
    elif by == "owner above":
        of_ordinary(above)
    else:
        link = root.home.parent / "tmp" / "link"
        link.symlink_to(above)
        of_ordinary(link)
        named = link / "cache"
    said = refused(root.start("run", "machine", *QUICK, PERFLIB_CACHE=str(named)))
    assert "PERFLIB_CACHE" in said
    assert ("link" if by == "link above" else str(above)) in said
    assert list(cache.iterdir()) == []


def test_a_library_planted_in_an_open_cache_is_never_loaded(users: tuple[User, User]) -> None:
    root, _ = users
    cache = root.home / "cache"
    answer(root.start("run", "machine", *QUICK, PERFLIB_CACHE=str(cache)))
    cache.chmod(0o777)
    planted = list(cache.glob("*/*.so"))
    for library in planted:
        library.write_bytes(b"harm")
    of_ordinary(*planted)
    assert planted
    for right in (0o777, 0o700):  # also once the cache is closed again
        cache.chmod(right)
        said = refused(root.start("run", "machine", *QUICK, PERFLIB_CACHE=str(cache)))
        assert "nothing is loaded from it" in said


@pytest.mark.slow
def test_runs_are_not_written_where_another_user_could_exchange_them(
    users: tuple[User, User],
) -> None:
    root, ordinary = users
    store = ordinary.home / "data"
    (store / "runs").mkdir(parents=True)
    of_ordinary(store, store / "runs")
    opened = root.home / "open"
    (opened / "runs").mkdir(parents=True)
    (opened / "runs").chmod(0o777)
    for home in (store, opened):
        said = refused(root.start("run", "machine", *QUICK, PERFLIB_HOME=str(home)))
        assert "nothing is written" in said
        assert "PERFLIB_HOME" in said
        assert list((home / "runs").iterdir()) == []
    run = answer(ordinary.start("run", "machine", *QUICK, PERFLIB_HOME=str(store)))["run"]
    shown = root.start("show", run, PERFLIB_HOME=str(store))  # to be read is not to be trusted
    assert run in shown.communicate(timeout=200)[0]
    assert shown.returncode == 0


def test_a_planted_journal_starts_no_job(users: tuple[User, User]) -> None:
    """Its parameters name the job: whoever went on with it would start a stranger's program."""
    root, _ = users
    proof = root.home / "proof"
    run_id = "kv_per_core-20260102-030405-host-0000000000"
    header = {
        "id": run_id,
        "experiment": "kv_per_core",
        "params": {"job": "command", "job_command": f"touch {proof}"},
        "plan": {},
    }
    journal = root.home / "data" / "runs" / f"{run_id}.journal"
    journal.parent.mkdir(parents=True)
    journal.write_text(json.dumps(header) + "\n")
    home = {"PERFLIB_HOME": str(root.home / "data")}
    of_ordinary(journal)
    said = refused(root.start("run", "--resume", run_id, **home))
    assert f"{journal} belongs to user id {ORDINARY}" in said
    os.chown(journal, 0, 0)
    journal.chmod(0o666)
    said = refused(root.start("run", "--resume", run_id, **home))
    assert f"{journal} can be written by others" in said
    elsewhere = root.home / "elsewhere"
    journal.rename(elsewhere)
    journal.symlink_to(elsewhere)
    process = root.start("run", "--resume", run_id, **home)
    assert "cannot be opened" in process.communicate(timeout=200)[1]
    assert process.returncode == 1
    assert not proof.exists()


@pytest.mark.slow
def test_a_planted_plan_starts_no_job(users: tuple[User, User]) -> None:
    root, _ = users
    proof, folder = root.home / "proof", root.home.parent / "tmp" / "investigation"
    folder.mkdir()
    question = {"job": f"touch {proof}", "events": 20}
    plan = {"schema": 1, "question": question, "cores": [0], "tag": "", "spent_s": 0.0}
    (folder / "investigation.json").write_text(json.dumps({**plan, "fit": {}, "steps": []}))
    of_ordinary(folder, folder / "investigation.json")
    said = refused(root.start("investigate", "--resume", str(folder)))
    assert f"belongs to user id {ORDINARY}" in said
    assert "--replay" in said
    assert not proof.exists()


def test_a_configuration_that_a_stranger_linked_to_is_not_read(users: tuple[User, User]) -> None:
    root, _ = users
    real = root.home / "perflib.toml"
    real.write_text('progress = "log"\n')
    planted = root.home.parent / "tmp" / "perflib.toml"
    planted.symlink_to(real)
    for owner, counts in ((0, True), (ORDINARY, False)):
        os.chown(planted, owner, owner, follow_symlinks=False)
        argv = [sys.executable, "-m", "perflib", "config", "--json"]
        done = subprocess.run(
            argv,
            env=root.environment,
            cwd=planted.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        assert (str(planted) in done.stdout) == counts


def test_a_folder_of_another_user_gives_no_module(users: tuple[User, User]) -> None:
    """Python's ``-m`` and ``-c`` would take them from the current folder, before all others."""
    root, ordinary = users
    for name in ("perflib", "json", "numpy", "cffi", "_cffi_backend", "platformdirs"):
        planted = ordinary.home / f"{name}.py"
        planted.write_text(f"open({str(ordinary.home / 'taken')!r}, 'w')\n")
        os.chown(planted, ORDINARY, ORDINARY)
    script = Path(sys.executable).with_name("perflib")
    words = [str(script), "run", "machine", *QUICK]
    done = subprocess.run(
        words, cwd=ordinary.home, env=root.environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not (ordinary.home / "taken").exists()
