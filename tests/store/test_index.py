"""The index of a store: as fresh as its files, made again where it is damaged or foreign."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from perflib.model.run import Run
from perflib.store import index, query, run_files
from perflib.store.index import INDEX, indexed
from perflib.store.reported import reported
from tests.disk import files_no_larger_than, small_disk
from tests.model.made import slower

COUNT = 5


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a store, written once for all tests."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFLIB_HOME", str(folder))
        for number in range(COUNT):
            save(number)
    return folder


@pytest.fixture(autouse=True)
def runs(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose index is written from three files on."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(index, "_ENOUGH", 2)
    shutil.copytree(saved, tmp_path / "home")
    return tmp_path / "home" / "runs"


def save(number: int, found: Mapping[str, str] | None = None, rows: int = 3) -> Path:
    provenance = {"machine": {"hostname": f"node{number}"}, "start": f"2026-01-0{number + 1}"}
    samples = pd.DataFrame({"round": range(rows)})
    run = Run(f"test-2026010{number}-000000-a{number}", "test", {}, samples, provenance)
    return run_files.save(run, reported=found)


def found(effect: float) -> dict[str, str]:
    levels = pd.DataFrame({"cpu": [0, 8], "setting": "n=1", "value": [1.0, 2.0], "unit": "ns"})
    return reported([slower(8, "supported", effect)], levels)


def nodes() -> list[str]:
    return [entry.machine for entry in run_files.runs()]


def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Lists anew; returns the names of the files that were read."""
    read: list[str] = []
    original = index._read

    def counting(connection: duckdb.DuckDBPyConnection, paths: list[Path]) -> None:
        read.extend(path.name for path in paths)
        original(connection, paths)

    monkeypatch.setattr(index, "_read", counting)

    def names() -> list[str]:
        read.clear()
        assert len(run_files.runs()) == len(list(run_files.runs_dir().glob("*.parquet")))
        return list(read)

    return names


def test_what_is_indexed_is_not_opened_again(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = opened(monkeypatch)
    assert len(read()) == COUNT
    assert (runs / INDEX).is_file()
    assert read() == []
    assert nodes() == [f"node{number}" for number in range(COUNT)]
    changed = save(2, rows=9)
    added = save(6)
    assert read() == [changed.name, added.name] or read() == [added.name, changed.name]
    assert {entry.id: entry.samples for entry in run_files.runs()}[changed.stem] == 9
    added.unlink()
    assert read() == [changed.name]


def test_few_new_files_do_not_rewrite_it(runs: Path) -> None:
    run_files.runs()
    before = (runs / INDEX).stat().st_ino
    save(6)
    save(7)
    assert len(run_files.runs()) == COUNT + 2
    assert (runs / INDEX).stat().st_ino == before
    save(8)
    assert len(run_files.runs()) == COUNT + 3
    assert (runs / INDEX).stat().st_ino != before


def test_a_damaged_index_is_made_again(runs: Path) -> None:
    """All after a byte is gone: the list is right, because the index is not used."""
    run_files.runs()
    whole = (runs / INDEX).read_bytes()
    for place in (0, 7, 35, 63, 98):
        at = len(whole) * place // 100
        (runs / INDEX).write_bytes(whole[:at])
        assert nodes() == [f"node{number}" for number in range(COUNT)], place
    (runs / INDEX).write_bytes(b"x" * len(whole))
    assert nodes() == [f"node{number}" for number in range(COUNT)]


def test_a_damaged_part_is_found_when_it_is_read(runs: Path) -> None:
    """A few bytes within: what is asked for is right, and the index is made again."""
    for number in range(COUNT):
        save(number, found(float(number)))
    run_files.runs()
    whole = (runs / INDEX).read_bytes()
    for place in (1, 28, 55, 82, 91):
        at = len(whole) * place // 100
        (runs / INDEX).write_bytes(whole[:at] + b"\xa5" * 40 + whole[at + 40 :])
        table = run_files.query("SELECT node, effect FROM findings ORDER BY node")
        assert nodes() == [f"node{number}" for number in range(COUNT)], place
        assert table.to_numpy().tolist() == [
            [f"node{number}", float(number)] for number in range(COUNT)
        ], place


def test_an_index_that_is_replaced_while_it_is_read_is_read_again(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_files.runs()
    kept, lock = (runs / INDEX).read_bytes(), query._lock

    def meanwhile(connection: duckdb.DuckDBPyConnection, files: set[str]) -> None:
        monkeypatch.setattr(query, "_lock", lock)
        (runs / INDEX).unlink()
        (runs / INDEX).write_bytes(kept)
        lock(connection, files)

    monkeypatch.setattr(query, "_lock", meanwhile)
    assert len(run_files.query("SELECT * FROM runs")) == COUNT
    assert (runs / INDEX).read_bytes() == kept


def foreign(path: Path, sql: str, version: str = index._FORMAT) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY ({sql}) TO '{path}' (FORMAT parquet, USE_TMP_FILE false, "
            f"KV_METADATA {{perflib_index: '{version}'}})"
        )


def test_an_index_of_another_shape_is_not_read(runs: Path, tmp_path: Path) -> None:
    run_files.runs()
    kept = shutil.copy(runs / INDEX, tmp_path / "kept.parquet")
    rows = f"SELECT * REPLACE ('wrong' AS node) FROM '{kept}'"
    for sql, version, used in (
        (rows, index._FORMAT, True),  # else nothing here is shown
        (rows, "0", False),
        (f"SELECT * EXCLUDE samples FROM ({rows})", index._FORMAT, False),
        (f"SELECT * REPLACE (samples::VARCHAR AS samples) FROM ({rows})", index._FORMAT, False),
        (f"{rows} UNION ALL {rows}", index._FORMAT, False),
        ("SELECT 1 AS name", index._FORMAT, False),
    ):
        foreign(runs / INDEX, sql, version)
        assert nodes() == (["wrong"] * COUNT if used else [f"node{n}" for n in range(COUNT)]), sql


def test_what_is_no_file_in_its_place_is_not_read(runs: Path, tmp_path: Path) -> None:
    makes: tuple[Callable[[], object], ...] = (
        lambda: os.mkfifo(runs / INDEX),
        (runs / INDEX).mkdir,
        lambda: (runs / INDEX).symlink_to("/dev/zero"),
        lambda: (runs / INDEX).symlink_to(tmp_path / "nowhere"),
    )
    for make in makes:
        make()
        assert nodes() == [f"node{number}" for number in range(COUNT)]
        if (runs / INDEX).is_dir():
            (runs / INDEX).rmdir()
        else:
            (runs / INDEX).unlink()


def test_a_full_disk_costs_the_index_alone(runs: Path) -> None:
    with files_no_larger_than(100):
        assert nodes() == [f"node{number}" for number in range(COUNT)]
    assert not [one for one in runs.iterdir() if one.name.startswith(".")]
    with (
        files_no_larger_than(100),
        pytest.raises((OSError, duckdb.Error)),
        indexed(runs, {"test-20260100-000000-a0.parquet": found(9.0)}),
    ):
        pass


def test_what_a_killed_process_left_is_removed(runs: Path) -> None:
    left = runs / f".{INDEX}.0123abcd"
    left.write_bytes(b"half")
    run_files.runs()
    assert (runs / INDEX).is_file()
    assert not left.exists()


def test_a_store_that_is_only_read_works_without(runs: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1024) as disk:
        shutil.copytree(runs, disk / "runs")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with indexed(disk / "runs") as found_there:
            assert len(found_there.paths) == COUNT
            assert found_there.damaged == []
        assert not (disk / "runs" / INDEX).exists()


def test_what_was_found_later_stays_in_the_index(runs: Path) -> None:
    name = "test-20260100-000000-a0"
    with indexed(runs, {f"{name}.parquet": found(9.0)}):
        pass
    sql = "SELECT run, effect FROM findings"
    assert run_files.query(sql).to_numpy().tolist() == [[name, 9.0]]
    for number in (6, 7, 8):  # written anew
        save(number)
    run_files.runs()
    assert run_files.query(sql).to_numpy().tolist() == [[name, 9.0]]
    save(0, found(4.0))  # the file is another: what was found in the first counts no more
    assert run_files.query(sql).to_numpy().tolist() == [[name, 4.0]]


def test_several_processes_at_once(runs: Path) -> None:
    """All list the same while the index is written, removed, and written again."""
    code = (
        "from perflib.store import index, run_files\nindex._ENOUGH = 0\n"
        f"for _ in range(6):\n    assert len(run_files.runs()) == {COUNT}, 'missed'\n"
        f"    assert len(run_files.query('SELECT * FROM runs')) == {COUNT}\n"
        "    (run_files.runs_dir() / index.INDEX).unlink(missing_ok=True)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        _, error = child.communicate(timeout=120)
        assert child.returncode == 0, error
    assert {one.suffix for one in runs.iterdir()} <= {".parquet", ""}
