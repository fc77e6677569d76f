"""Files as a stranger would damage them, for every parser; and what is no file at all."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest

from perflib.instruments.perf import script
from perflib.instruments.perf.data import PerfData
from perflib.instruments.threads import samples, waits
from perflib.instruments.threads.recording import Recording
from perflib.machine.libraries.elf import Elf, read_elf
from perflib.measure.journal import Journal
from perflib.model.errors import MeasurementError, PerflibError, UserError
from perflib.store import reading, run_files
from tests.fuzz.mutate import mutated, mutated_json
from tests.fuzz.mutations import tried
from tests.fuzz.parsers import PARSERS, Parser
from tests.instruments.perf import perf_files
from tests.instruments.threads.made import made_recording


def test_damaged_files_end_in_sentences() -> None:
    """In a process of its own, whose memory is bounded; ``make fuzz`` does a million."""
    line = [sys.executable, "-m", "tests.fuzz.mutations", "--number", "800"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^(\w+): (\d+) inputs in .*, 0 findings$", done.stdout, re.MULTILINE)
    assert [name for name, _ in found] == list(PARSERS)
    assert sum(int(number) for _, number in found) > 750


@pytest.mark.parametrize("raised", [ValueError("no"), MemoryError(), RecursionError(), KeyError(1)])
def test_any_other_error_is_a_finding(raised: Exception) -> None:
    def parse(data: bytes) -> None:
        if data != b"whole":
            raise raised

    (found,) = tried("made", Parser([b"whole"], parse, 1), 1, range(50), 20)
    assert type(raised).__name__ in found
    assert tried("made", Parser([b"whole"], lambda _: None, 1), 1, range(50), 20) == []


def test_mutations_follow_from_their_seed_and_differ() -> None:
    data, others = bytes(range(200)), [b"line 1\nline 22\n"]
    made = [mutated(random.Random(n), data, others) for n in range(200)]
    assert made == [mutated(random.Random(n), data, others) for n in range(200)]
    assert len(set(made)) > 150
    record = json.dumps({"a": {"b": [1, {"c": "d"}]}, "e": 2})
    changed = {mutated_json(random.Random(n), record) for n in range(200)}
    assert len(changed) > 100
    assert any("[" * 5000 in one for one in changed)


# --- what is no file ------------------------------------------------------------------------------


def opened_recording(path: Path) -> None:
    """One whose intervals are something else."""
    folder = path.parent / "recording"
    made_recording(folder, threads=2, seconds=0.1, per_second=100)
    (folder / "intervals.npy").unlink()
    path.rename(folder / "intervals.npy")
    Recording.open(folder)


def described_recording(path: Path) -> None:
    """One whose description is something else."""
    path.rename(path.with_name("meta.json"))
    Recording.open(path.parent)


def read_records(path: Path) -> None:
    with PerfData(path) as data:
        list(data.records())


def read_program(path: Path) -> None:
    assert read_elf(path) == Elf()
    raise UserError("nothing of it is known")  # noqa: EM101 (as the others say)


READERS: dict[str, Callable[[Path], object]] = {
    "perf.txt": script.read,
    "perf.data": read_records,
    "intervals": opened_recording,
    "meta": described_recording,
    "run.parquet": reading.read_run,
    "table.csv": reading.read_table,
    "table.parquet": reading.read_table,
    "a.journal": Journal.reopen,
    "small.so": read_program,
}


INSTEAD: dict[str, Callable[[Path], object]] = {
    "directory": Path.mkdir,
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "empty": Path.touch,
}


@pytest.mark.parametrize("instead", INSTEAD)
@pytest.mark.parametrize("name", READERS)
def test_something_else_in_a_files_place(tmp_path: Path, name: str, instead: str) -> None:
    """Nobody writes to the pipe, and the device has no end: neither is waited for."""
    if (name, instead) == ("perf.txt", "pipe"):
        pytest.skip("a text may come through a pipe: its reader waits for who writes it")
    INSTEAD[instead](tmp_path / name)
    with pytest.raises(PerflibError, match=r"\w+ \w+"):
        READERS[name](tmp_path / name)


def test_what_else_is_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    (tmp_path / "runs").mkdir()
    for suffix in ("parquet", "journal"):
        os.mkfifo(tmp_path / "runs" / f"pipe.{suffix}")
        (tmp_path / "runs" / f"folder.{suffix}").mkdir()
    assert {one.status for one in run_files.runs()} == {"damaged"}


# --- out of proportion ----------------------------------------------------------------------------


def saved(path: Path, record: str, query: str = "SELECT 1 AS x") -> Path:
    with duckdb.connect() as connection:
        escaped = record.replace("'", "''")
        connection.execute(
            f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd, "
            f"KV_METADATA {{perflib: '{escaped}'}})"
        )
    return path


WHOLE = {"id": "a", "experiment": "a", "params": {}, "provenance": {}, "schema": 2}


def test_a_record_that_is_deeper_than_any_recursion(tmp_path: Path) -> None:
    text = json.dumps(WHOLE | {"provenance": {"plan": 0}}).replace(
        "0}", "[" * 10**4 + "]" * 10**4 + "}"
    )
    with pytest.raises((UserError, MeasurementError), match=r"deep|recursion"):
        run_files.load(saved(tmp_path / "run.parquet", text))


@pytest.mark.parametrize(
    ("provenance", "place"),
    [
        ({"machine": []}, "provenance.machine"),
        ({"machine": {"caches": [{"level": 1, "kind": "data"}]}}, "caches.0.size_bytes is missing"),
        (
            {"machine": {"cpus": [{"cpu": 10**12}]}},
            "provenance.machine.cpus.0.cpu is 1000000000000",
        ),
        ({"trials": "many"}, "provenance.trials is 'many'"),
        ({"problems": [1]}, "provenance.problems.0 is 1"),
        ({"softirqs": {"0": {"ticks": 1, "of_ticks": 0, "kinds": {}}}}, "of_ticks is 0"),
    ],
)
def test_a_record_of_wrong_types(tmp_path: Path, provenance: object, place: str) -> None:
    text = json.dumps(WHOLE | {"provenance": provenance})
    with pytest.raises(UserError, match=re.escape(place)):
        run_files.load(saved(tmp_path / "run.parquet", text))


def test_a_table_out_of_proportion_to_its_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "run.parquet", json.dumps(WHOLE), "SELECT 1 AS x FROM range(50000000)")
    assert path.stat().st_size < 1 << 20
    for read in (run_files.load, reading.read_table):
        with pytest.raises(UserError, match="claims 50000000 rows"):
            read(path)
    text = "SELECT repeat('x', 1000000) AS x FROM range(1000)"
    with pytest.raises(UserError, match="claims 1000 rows"):
        reading.read_table(saved(tmp_path / "texts.parquet", "", text))


def test_ids_that_every_event_of_a_file_names(tmp_path: Path) -> None:
    """Each by itself fits into the file; all of them do not."""
    event = perf_files.FileEvent(ids=tuple(range(1, 400)))
    raw = bytearray(
        perf_files.perf_file([event] * 20, [perf_files.comm(event, b"x", pid=1, tid=1)])
    )
    first = raw[104 + 128 : 104 + 144]  # where the first event's ids are
    for number in range(20):
        raw[104 + 144 * number + 128 : 104 + 144 * (number + 1)] = first
    path = tmp_path / "perf.data"
    path.write_bytes(raw[: 104 + 144 * 20 + 8 * 400])
    with pytest.raises(MeasurementError, match="makes no sense"):
        PerfData(path)


def test_a_recording_that_names_what_it_has_not(tmp_path: Path) -> None:
    for field, read in (("lock", waits.lock_waits), ("stack", samples.wait_samples)):
        made = made_recording(tmp_path / field, threads=3, seconds=0.1, per_second=200)
        changed = np.load(made.folder / "intervals.npy")
        changed[field][changed["lock"] >= 0] = 10**6
        np.save(made.folder / "intervals.npy", changed)
        with pytest.raises(UserError, match=f"it names {field} 1000000 of"):
            read(Recording.open(made.folder))
