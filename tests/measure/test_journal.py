"""The journal of a running measurement: trials survive a kill, a full disk, a dead machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from perflib.measure import journal as journal_module
from perflib.measure.journal import Journal
from perflib.model.errors import MeasurementError, UserError
from tests.disk import files_no_larger_than

HEADER = {"id": "test-1", "experiment": "test", "params": {"text": 'ä"\n'}, "plan": {"n": 1}}
TRIALS = [
    {
        "round": n // 2,
        "configuration": n % 2,
        "wall_s": 0.5,
        "columns": {"time_ns": [n, None, 0.1 * n]},
    }
    for n in range(6)
]

KILLED = """
import os, signal, sys
from pathlib import Path
from perflib.measure.journal import Journal
journal = Journal.create(Path(sys.argv[1]), {"id": "test"})
for n in range(50):
    journal.append({"round": n, "text": "x" * 5000})
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def created(path: Path, trials: list[dict[str, Any]]) -> Iterator[Journal]:
    with closing(Journal.create(path, HEADER)) as journal:
        for trial in trials:
            journal.append(trial)
        yield journal


def reopened(path: Path) -> closing[Journal]:
    return closing(Journal.reopen(path))


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "test-1.journal"
    with created(path, TRIALS) as journal:
        assert (journal.header, journal.trials) == (HEADER, TRIALS)
    with reopened(path) as journal:
        assert (journal.header, journal.trials) == (HEADER, TRIALS)
        journal.append({"round": 3})
    with reopened(path) as journal:
        assert journal.trials == [*TRIALS, {"round": 3}]
        journal.close(remove=True)
    assert not path.exists()


def test_killed_process_loses_no_turn(tmp_path: Path) -> None:
    path = tmp_path / "test.journal"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    with reopened(path) as journal:
        assert [trial["round"] for trial in journal.trials] == list(range(50))


def test_only_one_process_has_it(tmp_path: Path) -> None:
    path = tmp_path / "test-1.journal"
    with (
        created(path, TRIALS),
        pytest.raises(UserError, match="run test-1 is being measured right now"),
    ):
        Journal.reopen(path)
    with reopened(path) as journal:
        assert journal.trials == TRIALS


def test_damaged_line_ends_what_is_kept(tmp_path: Path) -> None:
    """A machine that lost its power may leave blocks of zeros, or of something else."""
    path = tmp_path / "test.journal"
    for damage in (b"\0\0\0\0", b"\xff\xfe", b"[1]", b"{"):
        with created(path, TRIALS):
            pass
        lines = path.read_bytes().splitlines()
        lines[4] = damage
        path.write_bytes(b"\n".join(lines) + b"\n")
        with reopened(path) as journal:
            assert journal.trials == TRIALS[:3]
            journal.append(TRIALS[3])
        with reopened(path) as journal:
            assert journal.trials == TRIALS[:4]
        path.unlink()


@pytest.mark.parametrize("content", [b"", b"{", b'{"id": 1'])
def test_one_that_was_killed_before_its_first_line_was_whole_is_removed(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "test.journal"
    path.write_bytes(content)
    with pytest.raises(UserError, match="run test had measured nothing: its journal is removed"):
        Journal.reopen(path)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"\xff\xff\n", b"5\n"])
def test_without_its_first_line_it_is_of_no_use(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "test.journal"
    path.write_bytes(content)
    for _ in range(2):  # the second time: it was let go of
        with pytest.raises(MeasurementError, match="is damaged: remove it") as caught:
            Journal.reopen(path)
        assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    tmp_path.joinpath("runs").write_text("")
    with pytest.raises(MeasurementError, match="the run's journal cannot be made"):
        Journal.create(tmp_path / "runs" / "a.journal", HEADER)


def fill(journal: Journal, text_bytes: int) -> None:
    """Append until it fails."""
    for n in range(10_000):
        journal.append({"round": n, "text": "x" * text_bytes})


@pytest.mark.parametrize("text_bytes", [100, 5000, 12_000])
def test_full_disk_keeps_every_turn_before(tmp_path: Path, text_bytes: int) -> None:
    path = tmp_path / "test-1.journal"
    with created(path, []) as journal:
        with files_no_larger_than(30_000), pytest.raises(MeasurementError) as caught:
            fill(journal, text_bytes)
        trials = len(journal.trials)
        assert 0 < 30_000 - path.stat().st_size < text_bytes + 40, "as many as fit"
    assert f"the journal {path} cannot be written" in str(caught.value)
    assert f"The {trials} trials before are in it" in str(caught.value)
    assert "make room, then 'perflib run --resume test-1'" in str(caught.value)
    with reopened(path) as journal:
        assert [trial["round"] for trial in journal.trials] == list(range(trials))


def test_full_disk_from_the_start_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "test-1.journal"
    with (
        files_no_larger_than(10),
        pytest.raises(MeasurementError, match="Nothing was measured yet: make room"),
    ):
        Journal.create(path, HEADER)
    assert list(tmp_path.iterdir()) == []


def test_a_trial_that_is_written_is_kept_if_the_disk_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "test.journal"
    with created(path, TRIALS) as journal:
        monkeypatch.setattr(journal_module, "_FLUSH_S", -1.0)
        monkeypatch.setattr(os, "fdatasync", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            journal.append({"round": 9})
        assert journal.trials == [*TRIALS, {"round": 9}]
    with reopened(path) as journal:
        assert journal.trials == [*TRIALS, {"round": 9}]
