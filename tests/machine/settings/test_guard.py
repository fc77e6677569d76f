"""System settings are put back whatever happens to the process, to its children, to the guard.

Most tests work on a small tree that looks like /sys and /proc/sys; one changes the real switch of
transparent huge pages where it may.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from perflib.machine.settings import changes as system_settings
from perflib.machine.settings import guard
from perflib.machine.settings.changes import restore_leftovers, settings
from perflib.machine.settings.knobs import KNOBS
from perflib.model.errors import MeasurementError, UserError
from tests.processes import alive, soon

THP = "sys/kernel/mm/transparent_hugepage/enabled"
ASLR = "proc/sys/kernel/randomize_va_space"
GOVERNORS = [f"sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in range(2)]

CHANGER = """
import os, subprocess, sys, time
from pathlib import Path
from perflib.machine.settings.changes import settings
with settings({"thp": "always", "governor": "performance"}, Path(sys.argv[1])) as record:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    worker = subprocess.Popen(["sleep", "60"], start_new_session=sys.argv[2] == "apart", **quiet)
    print(record._guard.pid, worker.pid, flush=True)
    if sys.argv[2] == "short":
        sys.stdin.read()
    else:
        time.sleep(60)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "restore"


@pytest.fixture
def root(tmp_path: Path, home: Path) -> Path:  # noqa: ARG001 (no journal in the user's own home)
    tree = {THP: "always [madvise] never\n", ASLR: "2\n"} | dict.fromkeys(GOVERNORS, "powersave\n")
    for name, text in tree.items():
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "root"


def value(root: Path, name: str) -> str:
    return guard.read_setting(str(root / name))


def values(root: Path) -> list[str]:
    return [value(root, name) for name in (THP, *GOVERNORS)]


def check_refused(
    asked: dict[str, str], root: Path, sentence: str, error: type[Exception] = UserError
) -> None:
    with pytest.raises(error, match=sentence), settings(asked, root):
        pytest.fail("not refused")


AS_FOUND = ["madvise", "powersave", "powersave"]
CHANGED = ["always", "performance", "performance"]


class Changer:
    """Another process, in a group of its own, that has settings changed."""

    def __init__(self, root: Path, how: str) -> None:
        argv = [sys.executable, "-c", CHANGER, str(root), how]
        self.process = subprocess.Popen(
            argv, stdin=-1, stdout=-1, stderr=-1, start_new_session=True
        )
        assert self.process.stdout is not None
        self.guard, self.worker = map(int, self.process.stdout.readline().split())

    def kill_guard(self) -> None:
        os.kill(self.guard, signal.SIGKILL)
        assert soon(lambda: not alive(self.guard))

    def kill_both(self) -> None:
        self.kill_guard()
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


@contextmanager
def changer(root: Path, how: str = "plain") -> Iterator[Changer]:
    other = Changer(root, how)
    assert values(root) == CHANGED
    try:
        yield other
    finally:
        other.process.kill()
        if alive(other.worker):
            os.kill(other.worker, signal.SIGKILL)
        other.process.communicate()


# --- the ways in which a process can end --------------------------------------------------------


def test_success(root: Path, home: Path) -> None:
    with settings({"thp": "always", "governor": "performance"}, root) as record:
        assert values(root) == CHANGED
        (journal,) = home.glob("*.journal")
        assert "powersave" in journal.read_text()
        assert record.changes == {
            "thp": {"before": "madvise", "now": "always"},
            "governor": {"before": "powersave", "now": "performance"},
        }
    assert values(root) == AS_FOUND
    assert list(home.iterdir()) == []
    assert record.notes == []
    assert restore_leftovers() == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_exception(root: Path, error: type[BaseException]) -> None:
    seen = []
    with pytest.raises(error), settings({"thp": "always", "aslr": "0"}, root):  # noqa: PT012
        seen.append(value(root, ASLR))
        raise error
    assert seen == ["0"]
    assert values(root) == AS_FOUND
    assert value(root, ASLR) == "2"


def test_interrupt_from_the_terminal_puts_back_before_the_process_ends(root: Path) -> None:
    with changer(root) as other:
        os.killpg(other.process.pid, signal.SIGINT)
        other.process.wait(60)
        assert values(root) == AS_FOUND
        assert not alive(other.guard)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_process_is_killed(root: Path, home: Path, number: int) -> None:
    with changer(root) as other:
        os.kill(other.process.pid, number)
        assert soon(lambda: values(root) == AS_FOUND and not alive(other.guard))
    assert [path.name for path in home.iterdir()] == ["log"]
    assert "was set to 'always'" in (home / "log").read_text()
    assert restore_leftovers() == []


def test_whole_process_group_is_killed(root: Path) -> None:
    with changer(root) as other:
        os.killpg(other.process.pid, signal.SIGKILL)
        assert soon(lambda: values(root) == AS_FOUND)
        assert soon(lambda: not alive(other.worker))


def test_workers_that_outlive_the_process_do_not_hold_the_guard_back(root: Path) -> None:
    with changer(root, "apart") as other:
        os.kill(other.process.pid, signal.SIGKILL)
        assert soon(lambda: values(root) == AS_FOUND)
        assert alive(other.worker)


# --- the guard ---------------------------------------------------------------------------------


def test_guard_stands_apart_and_holds_nothing_but_its_pipe(root: Path, home: Path) -> None:
    with changer(root) as other:
        files = [str(link.readlink()) for link in Path(f"/proc/{other.guard}/fd").iterdir()]
        journals = [str(path) for path in home.glob("*.journal")]
        assert {name for name in files if not name.startswith("pipe:")} == {"/dev/null", *journals}
        assert len(files) == 4
        assert os.getsid(other.guard) == other.guard
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
            os.kill(other.guard, number)
        os.kill(other.process.pid, signal.SIGKILL)
        assert soon(lambda: values(root) == AS_FOUND)


def test_guard_is_killed_and_the_process_ends_well(root: Path, home: Path) -> None:
    with changer(root, "short") as other:
        other.kill_guard()
        _, errors = other.process.communicate()
        assert values(root) == AS_FOUND
        assert (other.process.returncode, errors) == (0, b"")
    assert list(home.iterdir()) == []


def test_guard_and_process_are_killed_and_leftovers_are_put_back_with_words(
    root: Path, home: Path
) -> None:
    with changer(root) as other:
        other.kill_both()
        assert values(root) == CHANGED
        said = restore_leftovers()
        assert values(root) == AS_FOUND
    assert len(said) == 3
    assert f"process {other.process.pid} was killed" in said[0]
    assert f"{root / THP} back to 'madvise' (it was set to 'always')" in said[2]
    assert restore_leftovers() == []
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("asked", [{"thp": "never"}, {}], ids=str)
def test_leftovers_are_put_back_before_a_measurement(root: Path, asked: dict[str, str]) -> None:
    with changer(root) as other:
        other.kill_both()
        with settings(asked, root) as record:
            assert values(root) == [asked.get("thp", "madvise"), *AS_FOUND[1:]]
        assert [change["before"] for change in record.changes.values()] == ["madvise"] * len(asked)
        assert len(record.notes) == 3
    assert values(root) == AS_FOUND


def test_leftovers_of_a_process_that_still_runs_are_not_touched(root: Path) -> None:
    with changer(root) as other:
        assert restore_leftovers() == []
        other.kill_guard()
        assert restore_leftovers() == []
        assert values(root) == CHANGED


# --- others at work ----------------------------------------------------------------------------


def test_value_that_somebody_else_changed_meanwhile_is_left_alone(root: Path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="it is 'never' now, which somebody else has set"),
        settings({"thp": "always", "aslr": "0"}, root) as record,
    ):
        (root / THP).write_text("always madvise [never]\n")
    assert value(root, THP) == "never"
    assert value(root, ASLR) == "2"
    assert len(record.notes) == 1


def test_setting_that_vanished_meanwhile_is_reported(root: Path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="policy1/scaling_governor is gone"),
        settings({"governor": "performance"}, root),
    ):
        (root / GOVERNORS[1]).unlink()
    assert not (root / GOVERNORS[1]).exists()
    assert value(root, GOVERNORS[0]) == "powersave"


def test_second_process_is_refused_and_the_first_is_named(root: Path) -> None:
    with changer(root) as other:
        check_refused({"aslr": "0"}, root, f"process {other.process.pid} is changing system")
        assert values(root) == CHANGED
        assert value(root, ASLR) == "2"
    assert soon(lambda: values(root) == AS_FOUND)


def test_second_change_in_the_same_process_is_refused(root: Path) -> None:
    with settings({"thp": "always"}, root):
        check_refused({"thp": "never"}, root, f"process {os.getpid()} is changing")
        assert value(root, THP) == "always"
    assert value(root, THP) == "madvise"


# --- refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"governer": "performance"}, "did you mean 'governor'"),
        ({"governor": "performace"}, "did you mean 'performance'"),
        ({"aslr": "3"}, "unknown value of aslr '3'"),
        ({"turbo": "off"}, "turbo=off: this machine has no such setting"),
    ],
)
def test_unknown_settings_and_values(root: Path, asked: dict[str, str], sentence: str) -> None:
    check_refused(asked, root, sentence)


def test_nothing_asked_touches_nothing(root: Path, home: Path) -> None:
    with settings({}, root) as record:
        assert record.changes == {}
    assert not home.exists()


def test_setting_that_cannot_be_written_is_refused_and_the_others_put_back(
    root: Path, home: Path
) -> None:
    (root / ASLR).unlink()
    (root / ASLR).symlink_to("/proc/version")  # which nobody can write, root included
    asked = {"thp": "always", "aslr": "0"}
    check_refused(asked, root, "sudo sysctl -w kernel.randomize_va_space=0")
    assert value(root, THP) == "madvise"
    assert list(home.iterdir()) == []


def test_value_that_the_kernel_does_not_take_is_refused_and_put_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = guard.write_setting
    monkeypatch.setattr(guard, "write_setting", lambda path, _: written(path, "schedutil"))
    sentence = "reads 'schedutil' after 'performance' was written"
    check_refused({"governor": "performance"}, root, sentence)
    assert values(root) == AS_FOUND


def test_guard_that_does_not_start_changes_nothing(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    check_refused({"aslr": "0"}, root, "settings does not start", MeasurementError)
    assert value(root, ASLR) == "2"
    assert list(home.iterdir()) == []


def test_folder_that_others_can_write_is_not_trusted(root: Path, home: Path) -> None:
    home.mkdir(parents=True)
    leftover(home, root)
    home.chmod(0o777)
    check_refused({"aslr": "0"}, root, "can be written by others")
    assert "can be written by others" in restore_leftovers()[-1]
    assert value(root, ASLR) == "0"


def test_data_folder_that_cannot_be_made(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(root / ASLR))  # a file
    check_refused({"aslr": "0"}, root, "nothing was changed")
    assert value(root, ASLR) == "2"


# --- journals of the dead ----------------------------------------------------------------------


def leftover(home: Path, root: Path, *, boot: str | None = None, host: str | None = None) -> Path:
    """A journal, and a changed setting, as a process leaves them that died with its guard."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (root / ASLR).write_text("0\n")
    journal = home / f"{boot or system_settings._boot()}.journal"
    lines = [
        {"pid": 4711, "host": host or platform.node()},
        {"path": str(root / ASLR), "old": "2", "new": "0"},
        {"path": str(root / THP), "old": "never", "new": "madvise"},
    ]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return journal


@hypothesis_settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None
)
@given(cut=st.integers(0, 1000), garbage=st.binary(max_size=20))
def test_journal_that_was_cut_off_anywhere(
    root: Path, home: Path, cut: int, garbage: bytes
) -> None:
    """A line is on disk before its change is made: what is not a whole line was not done."""
    (root / THP).write_text("always [madvise] never\n")
    journal = leftover(home, root)
    whole = journal.read_bytes()
    kept = whole[: min(cut, len(whole) - 1)]  # the last line is never whole
    journal.write_bytes(kept + garbage.replace(b"\n", b""))
    restore_leftovers()
    first_change_is_whole = kept.count(b"\n") == 2
    assert value(root, ASLR) == ("2" if first_change_is_whole else "0")
    assert value(root, THP) == "madvise"
    assert not journal.exists()


def test_journal_from_before_a_restart_is_dropped(root: Path, home: Path) -> None:
    journal = leftover(home, root, boot="an-earlier-start")
    assert restore_leftovers() == []
    assert value(root, ASLR) == "0"
    assert not journal.exists()


def test_journal_of_another_machine_with_the_same_home_is_kept(root: Path, home: Path) -> None:
    journal = leftover(home, root, boot="its-start", host="another-node")
    assert restore_leftovers() == []
    assert value(root, ASLR) == "0"
    assert journal.exists()


def test_leftover_that_cannot_be_put_back_stays_and_blocks(root: Path, home: Path) -> None:
    journal = leftover(home, root)
    now = guard.read_setting("/proc/version")
    change = {"path": "/proc/version", "old": "better", "new": now}
    journal.write_text(json.dumps({"pid": 4711}) + "\n" + json.dumps(change) + "\n")
    (sentence,) = restore_leftovers()
    assert "cannot put /proc/version back to 'better'" in sentence
    assert "By hand: echo better | sudo tee /proc/version" in sentence
    check_refused({"aslr": "2"}, root, "was left changed")
    assert journal.exists()


# --- for real ----------------------------------------------------------------------------------


@pytest.mark.xdist_group("huge pages")
@pytest.mark.usefixtures("home")
def test_the_real_transparent_huge_page_switch() -> None:
    switch = Path("/") / THP
    if not os.access(switch, os.W_OK):
        pytest.skip(f"{switch} cannot be written by this user")
    before = switch.read_text()
    wanted = "never" if KNOBS["thp"].read() != "never" else "madvise"
    with settings({"thp": wanted}):
        assert f"[{wanted}]" in switch.read_text()
    assert switch.read_text() == before
