"""Runs on disk: saved whole or not at all, found again, and read back years later."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.measure.journal import Journal
from perflib.model.errors import MeasurementError, UserError
from perflib.model.run import SCHEMA, Run
from perflib.store import run_files
from tests.disk import files_no_larger_than

DATA = Path(__file__).parents[1] / "data"
ROWS = 5000


def samples(rows: int = ROWS) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "round": np.arange(rows) // 10,
            "time_ns": generator.normal(size=rows),
            "cpu_time_ns": pd.array([None if n % 7 == 0 else n for n in range(rows)], "Int64"),
            "checksum": [f"it's {n:x}" for n in range(rows)],
            "ok": generator.random(rows) < 0.5,
        }
    )


def run(name: str = "test-20260102-030405-ab12", rows: int = ROWS, day: int = 2) -> Run:
    provenance = {
        "machine": {"hostname": "nöde'17"},
        "start": f"2026-01-0{day}T03:04:05.678+00:00",
        "stopped": "budget spent",
        "tag": 'a "quoted" \\ {brace}: $1\n',
        "width": [1.5, None, float("inf")],
    }
    return Run(name, "test", {"cores": [0, 8], "command": "echo 'x'"}, samples(rows), provenance)


# --- there and back ----------------------------------------------------------------------------


def test_everything_comes_back(home: Path) -> None:
    path = run_files.save(run())
    assert path == home / "runs" / "test-20260102-030405-ab12.parquet"
    back = run_files.load("test-20260102-030405-ab12")
    wanted = run()
    assert (back.id, back.experiment, back.params) == (wanted.id, "test", wanted.params)
    assert back.provenance == wanted.provenance
    assert back.schema == SCHEMA
    assert list(back.samples) == list(wanted.samples)
    for name in wanted.samples:
        assert back.samples[name].tolist() == wanted.samples[name].tolist(), name
    assert str(back) == "<Run test-20260102-030405-ab12: 5000 samples, stopped: budget spent>"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "nothing else is left"


def test_a_run_is_found_by_its_beginning_or_its_path(tmp_path: Path) -> None:
    run_files.save(run("test-1-aa", 3))
    run_files.save(run("test-1-ab", 3))
    elsewhere = run_files.save(run("test-2-cc", 3), tmp_path / "other" / "copy.parquet")
    assert run_files.load("test-1-aa").id == "test-1-aa"
    assert run_files.load(elsewhere).id == "test-2-cc"
    assert run_files.load(str(elsewhere)).id == "test-2-cc"
    with pytest.raises(UserError, match=r"unknown run 'tset-1-aa'; in .* first: test-1-aa, test-1"):
        run_files.load("tset-1-aa")
    with pytest.raises(UserError, match=r"there is no run file '/nowhere/x\.parquet'"):
        run_files.load("/nowhere/x.parquet")


def test_a_run_is_found_by_any_part_that_no_other_has() -> None:
    """The random end as in git, the time, the host; of a new run as of an old one."""
    old, new = "kv_per_core-20260101-000000-a9f1", "kv_per_core-20260102-030405-node17-7k2m9qx4tb"
    other = "machine-20260102-030405-node17-9z3n8rw5vc"
    for name in (old, new, other):
        run_files.save(run(name, 3))
    for part, whole in {
        "a9": old, "7k2": new, "7k2m9qx4tb": new, "20260101": old, "node17-9": other, "m": other,
        "kv_per_core-20260102": new, "20260102-030405-node17-7": new,
    }.items():  # fmt: skip
        assert run_files.load(part).id == whole, part
    with pytest.raises(UserError, match=f"run 'node17' may be any of: {new}, {other}"):
        run_files.load("node17")
    with pytest.raises(UserError, match=f"run 'kv' may be any of: {old}, {new}$"):
        run_files.load("kv")
    for inner in ("k2m", "0260101", "per_core"):
        with pytest.raises(UserError, match="unknown run"):
            run_files.load(inner)


def journal(name: str) -> Journal:
    return Journal.create(run_files.runs_dir() / f"{name}.journal", {"id": name})


def test_an_unfinished_run_is_found_as_a_saved_one_is() -> None:
    with pytest.raises(UserError, match="unknown run 'x': there are none in"):
        run_files.find("x", "unfinished")
    run_files.save(run("kv_per_core-20260101-000000-00aa", 3))
    interrupted = journal("kv_per_core-20260102-000000-00bb")
    interrupted.close()
    assert run_files.find(interrupted.path.stem, "unfinished") == interrupted.path
    assert run_files.find("kv_per", "unfinished") == interrupted.path
    assert run_files.find("kv_per").name == "kv_per_core-20260101-000000-00aa.parquet"
    nearest = "first: kv_per_core-20260102-000000-00bb, kv_per_core-20260101-000000-00aa"
    for misspelt in ("kv_pre_core-20260102", "kv_per_core-20260102-000000-00bc"):
        with pytest.raises(UserError, match=f"unknown run '{misspelt}'; .*{nearest}"):
            run_files.find(misspelt, "unfinished")
    journal("kv_per_core-20260103-000000-00cc").close()
    with pytest.raises(UserError, match="may be any of: kv_per_core-20260102-000000-00bb, kv_per"):
        run_files.find("kv_per_core", "unfinished")


def test_a_run_of_the_other_kind_says_what_can_be_done_with_it() -> None:
    run_files.save(run("kv-1", 3))
    with pytest.raises(UserError, match=r"run kv-1 is saved, .* see 'perflib show kv-1'"):
        run_files.find("kv", "unfinished")
    measuring = journal("numa-1")
    with pytest.raises(UserError, match="run numa-1 is being measured right now"):
        run_files.load("numa")
    measuring.close()
    with pytest.raises(UserError, match="'perflib run --resume numa-1' continues it"):
        run_files.load("numa")
    journal("kv-10").close()
    with pytest.raises(UserError, match="run kv-1 is saved"):  # and not the other's beginning
        run_files.find("kv-1", "unfinished")


# --- old files ---------------------------------------------------------------------------------


def test_run_of_schema_1_is_read_and_analysed() -> None:
    """A file that perflib 0.1.0 wrote: cpu8 of two is 12 % slower, and one turn is not ok."""
    old = run_files.load(DATA / "run_schema1.parquet")
    assert (old.id, old.schema) == ("kv_per_core-20261121-033019-a9f1", 1)
    assert old.params["cores"] == [0, 8]
    assert old.provenance["machine"]["hostname"] == "node17"
    assert old.provenance["tag"] == "it's 12 % slower: „ä“"
    assert old.samples.shape == (144, 10)
    assert old.samples["cpu_time_ns"].isna().sum() == 6
    assert old.samples["time_ns"].sum() == 620_528_490
    slow = next(one for one in get("kv_per_core").analyse(old) if one.subject == "cpu8")
    assert (slow.verdict, slow.low < 12.0 < slow.high) == ("supported", True)
    assert slow.evidence["where"] == "package 1, core 8, node 1"


def test_file_of_a_newer_perflib_says_so() -> None:
    newer = run(rows=3)
    newer.schema = SCHEMA + 1
    path = run_files.save(newer)
    message = f"written by a newer perflib .schema {SCHEMA + 1}"
    with pytest.raises(UserError, match=message) as error:
        run_files.load(path)
    assert "upgrade perflib" in str(error.value)


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.9999])
def test_cut_off_file_is_listed_as_damaged_and_says_so(kept: float) -> None:
    path = run_files.save(run())
    run_files.save(run("test-20260102-030406-cd34", 3))
    raw = path.read_bytes()
    path.write_bytes(raw[: int(kept * len(raw))])
    listed = [(entry.id, entry.status) for entry in run_files.runs()]
    assert listed == [
        ("test-20260102-030405-ab12", "damaged"),
        ("test-20260102-030406-cd34", "saved"),
    ]
    with pytest.raises(MeasurementError, match="cannot be read, it may be cut off") as error:
        run_files.load("test-20260102-030405-ab12")
    assert str(path) in str(error.value)
    assert "/proc/self" not in str(error.value)
    assert "perflib run --resume" in str(error.value)
    assert run_files.query("SELECT DISTINCT run FROM samples")["run"].tolist() == [
        "test-20260102-030406-cd34"
    ]


def test_damaged_bytes_are_never_a_traceback() -> None:
    """One byte changed, at each place of the file that is not data: the list always works."""
    path = run_files.save(run(rows=3))
    raw = path.read_bytes()
    other = run_files.save(run("test-20260102-030406-cd34", 3))
    places = range(raw.index(b"perflib") - 200, len(raw), 29)
    outcomes = set()
    for place in places:
        broken = bytearray(raw)
        broken[place] ^= 0xA5
        path.write_bytes(broken)
        outcomes.add({entry.id: entry.status for entry in run_files.runs()}[path.stem])
        with contextlib.suppress(MeasurementError, UserError):
            run_files.load(path)
        assert len(run_files.load(other).samples) == 3
    assert outcomes == {"saved", "damaged"}


def test_parquet_of_somebody_else_is_no_run(home: Path) -> None:
    path = home / "runs" / "foreign.parquet"
    path.parent.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS x) TO '{path}' (FORMAT parquet)")
    with pytest.raises(UserError, match="no run: 'perflib analyse' reads such tables"):
        run_files.load("foreign")
    assert [(entry.id, entry.status) for entry in run_files.runs()] == [("foreign", "damaged")]
    assert run_files.read_table(path)["x"].tolist() == [1]


# --- a full disk -------------------------------------------------------------------------------


def test_full_disk_leaves_nothing_half_saved_and_keeps_what_was_before(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "x.parquet"
    with files_no_larger_than(20_000), pytest.raises(MeasurementError) as error:
        run_files.save(run(), path)
    assert f"run {run().id} cannot be saved to {path}" in str(error.value)
    assert list(path.parent.iterdir()) == []
    run_files.save(run(rows=3), path)
    before = path.read_bytes()
    assert len(run_files.load(path).samples) == 3
    with files_no_larger_than(20_000), pytest.raises(MeasurementError):
        run_files.save(run(), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("")
    with pytest.raises(MeasurementError, match="cannot be saved to"):
        run_files.save(run(rows=3), tmp_path / "file" / "x.parquet")


# --- the list, queries, tables of users ----------------------------------------------------------


def test_list_has_saved_and_unfinished_runs_by_time(home: Path) -> None:
    assert run_files.runs() == []
    run_files.save(run("zebra-20260101-000000-0000", 3, day=1))
    run_files.save(run("kv_per_core-20260103-000000-0000", 3, day=3))
    journal = home / "runs" / "kv_per_core-20260102-000000-0000.journal"
    Journal.create(journal, {"id": journal.stem}).close()
    saved_too = home / "runs" / "zebra-20260101-000000-0000.journal"
    Journal.create(saved_too, {"id": saved_too.stem}).close()
    assert [(entry.id, entry.status, entry.experiment) for entry in run_files.runs()] == [
        ("zebra-20260101-000000-0000", "saved", "test"),
        ("kv_per_core-20260102-000000-0000", "interrupted", "kv_per_core"),
        ("kv_per_core-20260103-000000-0000", "saved", "test"),
    ]


def test_damaged_files_among_many_spoil_none_of_the_rest() -> None:
    path = run_files.save(run("test-000", 3))
    raw = path.read_bytes()
    for number in range(1, 60):
        path.with_name(f"test-{number:03}.parquet").write_bytes(raw)
    broken = {0, 7, 8, 9, 31, 59}
    for number in broken:  # some cut off, some with an end that leads nowhere
        end = raw[-4:] if number % 2 else b""
        content = raw[: number * len(raw) // 61] + end
        path.with_name(f"test-{number:03}.parquet").write_bytes(content)
    damaged = {entry.id for entry in run_files.runs() if entry.status == "damaged"}
    assert damaged == {f"test-{number:03}" for number in broken}
    assert all(entry.samples == 3 for entry in run_files.runs() if entry.id not in damaged)


def test_query_spans_runs_with_different_columns() -> None:
    with pytest.raises(UserError, match="no runs are saved in"):
        run_files.query("SELECT 1")
    run_files.save(run("test-a", 3))
    other = run("other-b", 2)
    other.samples = pd.DataFrame({"round": [5, 6], "latency_cycles": [1.5, 2.5]})
    run_files.save(other)
    table = run_files.query(
        "SELECT run, count(*) AS n, count(latency_cycles) AS latencies, max(round) AS last "
        "FROM samples GROUP BY run ORDER BY run"
    )
    assert json.loads(table.to_json(orient="values")) == [["other-b", 2, 2, 6], ["test-a", 3, 0, 0]]
    with pytest.raises(UserError, match=r"the query fails: .*tiem_ns"):
        run_files.query("SELECT tiem_ns FROM samples")


def test_table_of_a_user(tmp_path: Path) -> None:
    table = tmp_path / "it's MINE [1].CSV"
    table.write_text("round,cpu,time_ns\n0,0,1.5\n0,1,2.5\n")
    assert run_files.read_table(table)["time_ns"].tolist() == [1.5, 2.5]


def test_table_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*none\.csv"):
        run_files.read_table(tmp_path / "none.csv")
    for name, said in (("x.xlsx", "not '.xlsx'"), ("x", "not 'this'")):
        tmp_path.joinpath(name).write_text("")
        with pytest.raises(
            UserError, match=f"samples are read from .csv or .parquet files, {said}"
        ):
            run_files.read_table(tmp_path / name)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(run_files.save(run(rows=3)).read_bytes()[:200])
    with pytest.raises(UserError, match=r"cut\.parquet cannot be read as parquet") as error:
        run_files.read_table(cut)
    assert "/proc/self" not in str(error.value)


def test_nothing_is_written_into_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    run_files.save(run())
    run_files.query("SELECT * FROM samples ORDER BY time_ns")
    assert list(here.iterdir()) == []


def test_runs_of_the_first_schema_have_the_names_of_this_one() -> None:
    old = run_files.load(DATA / "runs" / "kv_per_core.parquet")
    assert old.schema == 1
    assert old.provenance["trials"] > 0
    assert old.provenance["failed_trials"] == 0
    assert [set(one) for one in old.provenance["conditions"]] == [
        {"requested", "obtained", "violated"}
    ] * len(old.provenance["conditions"])


@pytest.mark.parametrize("id_", ["../out", "/etc/out", ".hidden", "-option", "", "a\0b", "a\nb"])
def test_a_strangers_file_cannot_name_a_place(id_: str, tmp_path: Path) -> None:
    """The id of a run becomes the name of a file where it is copied to."""
    path = run_files.save(run(id_), tmp_path / "stranger.parquet")
    with pytest.raises(UserError, match="no run of perflib is called so"):
        run_files.load(path)


def test_an_interrupted_save_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB makes a RuntimeError of Ctrl-C."""

    def interrupted(**_: Any) -> None:
        msg = "Query interrupted"
        raise RuntimeError(msg)

    monkeypatch.setattr("duckdb.connect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_files.save(run())
    assert list(run_files.runs_dir().iterdir()) == []


def test_what_a_killed_process_left_half_saved_is_removed_by_the_next_to_save() -> None:
    run = Run("test-1", "test", {}, pd.DataFrame({"x": [1]}), {})
    folder = run_files.save(run).parent
    long_ago = time.time() - 7200
    kept = [".test-2.parquet.0000aaaa", ".test-2.parquet.old-copy", ".notes.0000cccc"]
    for name in [*kept, ".test-3.parquet.0000bbbb"]:
        (folder / name).touch()
        if name != kept[0]:  # somebody writes it
            os.utime(folder / name, (long_ago, long_ago))
    run_files.save(run)
    left = {path.name for path in folder.iterdir() if path.name.startswith(".")}
    assert left - {".index"} == set(kept)
