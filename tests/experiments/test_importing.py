"""Runs from elsewhere: copied whole, checked before, never in the place of another."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perflib.experiments import importing
from perflib.experiments.importing import import_runs
from perflib.model.errors import MeasurementError
from perflib.store import run_files
from tests.disk import files_no_larger_than
from tests.stored import RUNS

RUN = "kv_per_core-20260101-000000-node17-7aaaaaaaaa"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "runs"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another store, with one run and what else may lie there."""
    runs = tmp_path / "other" / "runs"
    run = run_files.load(RUNS / "kv_per_core.parquet")
    run_files.save(replace(run, id=RUN), runs / f"{RUN}.parquet")
    return runs


def test_a_run_is_copied_byte_by_byte_once(other: Path, home: Path) -> None:
    counted: list[tuple[int, int]] = []
    source = other / f"{RUN}.parquet"
    first = import_runs([other.parent], lambda done, of: counted.append((done, of)))
    assert [(one.path, one.run, one.state, one.reason) for one in first] == [
        (source, RUN, "imported", "")
    ]
    assert counted == [(1, 1)]
    assert (home / f"{RUN}.parquet").read_bytes() == source.read_bytes()
    assert [one.state for one in import_runs([other, source])] == ["there already"] * 2
    assert [one.name for one in home.iterdir()] == [f"{RUN}.parquet"]
    assert run_files.load(RUN).experiment == "kv_per_core"


def test_the_name_is_the_runs_and_not_the_files(other: Path, home: Path) -> None:
    renamed = (other / f"{RUN}.parquet").rename(other / "0123abcd.parquet")
    assert import_runs([renamed])[0].run == RUN
    assert [one.name for one in home.iterdir()] == [f"{RUN}.parquet"]


def test_another_file_of_a_run_is_refused_and_nothing_is_replaced(other: Path, home: Path) -> None:
    import_runs([other])
    before = (home / f"{RUN}.parquet").read_bytes()
    run = run_files.load(RUN)
    run_files.save(replace(run, samples=run.samples.head(50)), other / f"{RUN}.parquet")
    (one,) = import_runs([other])
    assert (one.state, one.run) == ("refused", RUN)
    assert "the store has another file of this run" in one.reason
    assert (home / f"{RUN}.parquet").read_bytes() == before


def test_what_is_no_run_has_a_reason_and_spoils_none_of_the_rest(other: Path, home: Path) -> None:
    raw = (other / f"{RUN}.parquet").read_bytes()
    run = run_files.load(other / f"{RUN}.parquet")
    other.joinpath("a_cut.parquet").write_bytes(raw[: len(raw) // 2])
    run_files.save(replace(run, id="b-1", experiment="none"), other / "b.parquet")
    wrong = run.samples.assign(time_ns=-1.0)
    run_files.save(replace(run, id="c-1", samples=wrong), other / "c.parquet")
    run_files.save(replace(run, id="../../d"), other / "d.parquet")
    os.mkfifo(other / "e.parquet")
    other.joinpath("f.parquet").symlink_to("/dev/zero")
    other.joinpath("g-1.journal").write_text("{}\n")
    other.joinpath(f".{RUN}.parquet.0123").write_bytes(raw[:50])
    other.joinpath("notes.txt").write_text("not looked at")
    found = {one.path.name: one for one in import_runs([other, other / "none"])}
    assert {name: one.state for name, one in found.items()} == {
        **dict.fromkeys(["a_cut.parquet", "b.parquet", "c.parquet", "d.parquet"], "refused"),
        **dict.fromkeys(["e.parquet", "f.parquet", "g-1.journal", "none"], "refused"),
        f"{RUN}.parquet": "imported",
    }
    for name, said in {
        "a_cut.parquet": "cannot be read, it may be cut off",
        "b.parquet": "unknown experiment 'none'",
        "c.parquet": "the column 'time_ns' holds -1.0 ns in row 1",
        "d.parquet": "no run of perflib is called so",
        "e.parquet": "it is a pipe",
        "f.parquet": "it is a device",
        "g-1.journal": "'perflib run --resume g-1'",
        "none": "there is no such file or folder",
    }.items():
        assert said in found[name].reason, name
    assert [one.name for one in home.iterdir()] == [f"{RUN}.parquet"]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (one,) = import_runs([tmp_path / "empty"])
    assert (one.state, one.run) == ("refused", "")
    assert "holds no run's file" in one.reason


def test_a_full_disk_ends_it_and_keeps_what_was_imported(other: Path, home: Path) -> None:
    large = other / "z.parquet"
    shutil.copyfile(RUNS / "coherence.parquet", large)
    size = (other / f"{RUN}.parquet").stat().st_size
    assert size < large.stat().st_size
    with (
        files_no_larger_than(size),
        pytest.raises(MeasurementError, match=r"z\.parquet cannot be imported to"),
    ):
        import_runs([other])
    assert [one.name for one in home.iterdir()] == [f"{RUN}.parquet"]
    assert [one.state for one in import_runs([other])] == ["there already", "imported"]


def test_two_who_import_at_once_replace_nothing(
    other: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether there is such a file and the copy, somebody else was faster."""
    target, copy = home / f"{RUN}.parquet", shutil.copyfile

    def slow(source: Path, temporary: Path) -> None:
        copy(source, temporary)
        target.write_bytes(b"another")

    monkeypatch.setattr("perflib.experiments.importing.shutil.copyfile", slow)
    assert [one.state for one in import_runs([other])] == ["refused"]
    assert target.read_bytes() == b"another"
    assert [one.name for one in home.iterdir()] == [target.name]


def test_what_a_killed_import_left_is_removed(other: Path, home: Path) -> None:
    """Not what is just being copied by another, nor what is nobody's copy."""
    home.mkdir(parents=True)
    old, new = (home / f".{RUN}.parquet.0123456{digit}" for digit in "78")
    for left in (old, new, home / ".keep"):
        left.write_bytes(b"half")
        os.utime(left, (1, 1))
    os.utime(new)
    import_runs([other])
    assert {one.name for one in home.iterdir()} == {new.name, ".keep", f"{RUN}.parquet"}


def test_parameters_are_checked_of_every_run(other: Path) -> None:
    run = run_files.load(other / f"{RUN}.parquet")
    for end in "bc":
        params = {**run.params, "events": -1}
        run_files.save(replace(run, id=f"{RUN[:-1]}{end}", params=params), other / f"{end}.parquet")
    assert [one.state for one in import_runs([other])] == ["refused", "refused", "imported"]


def several(other: Path) -> list[Path]:
    """Files enough for two workers; the third is damaged."""
    raw = (other / f"{RUN}.parquet").read_bytes()
    run = run_files.load(other / f"{RUN}.parquet")
    paths = []
    for end in "bcdefg":
        paths.append(other / f"{end}.parquet")
        run_files.save(
            replace(run, id=f"{RUN[:-1]}{end}", samples=run.samples.head(100)), paths[-1]
        )
    paths[2].write_bytes(raw[:100])
    return paths


def test_many_are_imported_by_workers_as_few_are(
    other: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = several(other)
    here = import_runs(paths)
    shutil.rmtree(home)
    monkeypatch.setattr(importing, "_WORTH_A_WORKER", 3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(importing, "_here", None)  # it is not what imports them
    assert import_runs(paths) == here
    assert [one.state for one in here].count("imported") == 5
    assert len(list(home.iterdir())) == 5


def test_a_worker_that_dies_costs_no_file(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = several(other)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    outcomes = list(importing._by_workers(paths, 2))
    assert [one.path for one in outcomes] == paths
    assert [one.state for one in outcomes].count("imported") == 5


def test_recordings_of_threads_stay_where_they_are() -> None:
    run = run_files.load(RUNS / "threads.parquet")
    assert run.provenance["recordings"]
    (one,) = import_runs([RUNS / "threads.parquet"])
    assert (one.state, one.reason) == ("imported", "its recordings of threads were left behind")
