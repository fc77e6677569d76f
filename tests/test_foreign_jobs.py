"""Jobs that misbehave, at every interface that starts one: an end, a sentence, nothing left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perflib.instruments.joblog import joblog
from perflib.instruments.joblog.jobrun import JobError, run_job
from perflib.instruments.joblog.logformat import FORMATS, LogFormat
from perflib.instruments.simulators.run import run_under
from perflib.instruments.threads.record import backends, profile_job
from perflib.instruments.threads.settings import Settings
from perflib.measure.job import run_alone
from perflib.model.errors import MeasurementError, PerflibError
from tests.processes import alive, open_files

HOSTILE = Path(__file__).with_name("hostile_job.py")
GOOD = ""  # no sentence: it ends well
KILLED = "did not end within .* and was killed"

ENDS = {
    "forks": GOOD,
    "daemon": GOOD,
    "keeps_the_pipe": GOOD,
    "binary": GOOD,
    "closes": GOOD,
    "many_threads": GOOD,
    "many_children": GOOD,
    "comet": GOOD,
    "renames": GOOD,
    "leaves_its_folder": GOOD,
    "eats_input": GOOD,
    "nothing": GOOD,
    "fails": "3",
    "dies": "SIGSEGV",
    "ignores": KILLED,
    "stops": KILLED,
    "stops_its_parent": KILLED,
    "kills_its_parent": "SIGKILL",
    "for_ever": KILLED,
    "prints_for_ever": KILLED,
}


@dataclass(frozen=True)
class Place:
    """Where a job runs, and what it notes."""

    folder: Path

    def argv(self, mode: str) -> list[str]:
        return [sys.executable, str(HOSTILE), mode, str(self.note)]

    @property
    def note(self) -> Path:
        return self.folder / "note"

    def noted(self) -> list[int]:
        return [int(word) for word in self.note.read_text().split()]


def marked(folder: Path) -> list[str]:
    """Processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (words := path.read_bytes()):
                found.append(f"{path.parent.name}: {words!r}")
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A folder to run in; at the end nothing of what ran there is left."""
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    for folder in (work, temporary):
        folder.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    descriptors = open_files()
    children = Path("/proc/self/task") / str(os.getpid()) / "children"
    before = children.read_text() if children.exists() else ""  # of another test's fixture
    yield (there := Place(tmp_path))
    noted = there.noted() if there.note.exists() else []
    assert [pid for pid in noted if alive(pid)] == []
    assert marked(tmp_path) == []
    assert list(temporary.iterdir()) == []
    assert open_files() == descriptors
    assert not children.exists() or children.read_text() == before


def logged(argv: list[str], timeout_s: float) -> str:
    """What `run_job` says of a job; nothing if it ended well."""
    try:
        result = run_job(argv, FORMATS["athena"], timeout_s=timeout_s)
    except PerflibError as error:
        return str(error)
    said = [problem for problem in result.problems if "were read only so far" not in problem]
    if result.returncode:
        said.append(f"status {result.returncode}")
    if not result.events and argv[2:3] not in (["nothing"], ["leaves_its_folder"]):
        said.append("no event")
    return " ".join(said)


def alone(argv: list[str], timeout_s: float) -> str:
    """What `run_alone` says of a job; nothing if it ended well."""
    return run_alone(argv, timeout_s=timeout_s).problem


def simulated(argv: list[str], timeout_s: float) -> str:
    """What the runner of simulators says of a job; nothing if it ended well."""
    try:
        run_under(argv, argv, environment=None, timeout_s=timeout_s)
    except MeasurementError as error:
        return str(error)
    return ""


INTERFACES = [logged, alone, simulated]


def _each() -> Iterator[Any]:
    """Every mode at every interface; those that wait for a time limit are in `make test` once."""
    for mode, end in ENDS.items():
        for at, interface in enumerate(INTERFACES):
            slow = at != list(ENDS).index(mode) % len(INTERFACES)
            marks = [pytest.mark.slow] if slow and end == KILLED else []
            yield pytest.param(mode, interface, id=f"{mode}-{interface.__name__}", marks=marks)


@pytest.mark.parametrize(("mode", "interface"), list(_each()))
def test_a_job_ends_with_a_sentence_and_leaves_nothing(
    mode: str, interface: Callable[[list[str], float], str], place: Place
) -> None:
    said = interface(place.argv(mode), 6 if ENDS[mode] == KILLED else 100)
    assert re.search(ENDS[mode] or "^$", said), said
    assert place.noted()


@pytest.mark.slow
def test_one_endless_line_and_endless_output_take_no_memory(place: Place) -> None:
    """A line of 300 MiB, and as much output as a job can write in a second."""
    for interface in INTERFACES:
        interface(place.argv("binary"), 60)  # what is imported and kept once
    before = Path("/proc/self/clear_refs")
    before.write_text("5")  # the peak begins anew
    peak_kb = _status_kb("VmHWM")
    for interface in INTERFACES:
        assert "was killed" not in interface(place.argv("one_line"), 200)
        assert "was killed" in interface(place.argv("prints_for_ever"), 1)
    assert _status_kb("VmHWM") - peak_kb < 60_000


def _status_kb(name: str) -> int:
    words = Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()
    return int(words[0])


def test_events_without_end_are_no_log(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblog, "MOST_EVENTS", 1000)
    with pytest.raises(MeasurementError, match="more than 1000 events are open at once"):
        run_job(place.argv("begins_for_ever"), FORMATS["athena"], timeout_s=60)
    with pytest.raises(MeasurementError, match="logged more than 1000 events: do its expressions"):
        run_job(place.argv("events_for_ever"), FORMATS["athena"], timeout_s=60)


def test_lines_that_are_slow_to_search_do_not_outlast_the_time_limit(place: Place) -> None:
    """Each line alone would be in time."""
    slow = LogFormat(r"(?P<event>(?:a|aa)+)$", "end")
    script = f"for _ in range(100000): print({'a' * 24 + 'b'!r})"
    with pytest.raises(JobError, match="did not end within 2 s"):
        run_job([sys.executable, "-c", script], slow, timeout_s=2)
    place.note.touch()


# --- what cannot be started -----------------------------------------------------------------------


def _missing(folder: Path) -> str:
    return str(folder / "nothing")


def _folder(folder: Path) -> str:
    return str(folder)


def _plain(folder: Path) -> str:
    path = folder / "plain"
    path.write_text("echo\n")
    return str(path)


def _no_shebang(folder: Path) -> str:
    Path(path := _plain(folder)).chmod(0o755)
    return path


def _lost_shebang(folder: Path) -> str:
    path = folder / "lost"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize(
    ("made", "why"),
    [
        (_missing, "No such file or directory: is its name right"),
        (_lost_shebang, "No such file or directory: is its name right"),
        (_folder, "Permission denied: it is a folder"),
        (_plain, "Permission denied: may it be executed"),
        (_no_shebang, "Exec format error: it lacks a #! line"),
        (lambda _: "a\0b", "null byte"),
    ],
)
def test_what_cannot_be_started_is_reported(
    made: Callable[[Path], str],
    why: str,
    interface: Callable[[list[str], float], str],
    place: Place,
) -> None:
    argv = [made(place.folder), "an argument"]
    try:
        said = interface(argv, 60)
    except MeasurementError as error:
        said = str(error)
    assert "cannot be started: " in said
    assert why in said


# --- what ends while a job runs -------------------------------------------------------------------


PARENT = """
import sys
from perflib.measure.job import run_alone
run_alone(sys.argv[1:], timeout_s=600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("mode", ["ignores", "daemon_and_on", "stops"])
def test_a_job_ends_with_what_has_started_it(
    mode: str, number: signal.Signals, place: Place
) -> None:
    argv = [sys.executable, "-c", PARENT, *place.argv(mode)]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as parent:
        wanted = 3 if mode == "daemon_and_on" else 1
        while not place.note.exists() or len(place.noted()) < wanted:
            time.sleep(0.01)
        parent.send_signal(number)
        parent.wait(60)
    for _ in range(3000):
        if not any(alive(pid) for pid in place.noted()) and not marked(place.folder):
            break  # the supervisor, too
        time.sleep(0.01)


# --- recorded jobs ------------------------------------------------------------------------------


RECORDED = ["forks", "daemon", "binary", "closes", "many_threads", "renames", "fails", "ignores"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["perf", "preload"])
@pytest.mark.parametrize("mode", RECORDED)
def test_a_recorded_job_ends_and_leaves_nothing(backend: str, mode: str, place: Place) -> None:
    if why := backends()[backend]:
        pytest.skip(why)
    limit_s = 4 if ENDS[mode] == KILLED else 120
    done = profile_job(
        place.argv(mode), Settings(), place.folder / "recording", backend, timeout_s=limit_s
    )
    assert re.search(ENDS[mode] or "^$", done.problem), done.problem
    assert len(done.recording.threads) > 0
    assert sorted(path.name for path in place.folder.iterdir()) == [
        "note", "recording", "temporary", "work"
    ]  # fmt: skip
