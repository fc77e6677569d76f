"""Intervals on disk and in memory: nothing is lost, nothing is twice, and both are bounded."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perflib.instruments.counters import counting as module
from perflib.instruments.counters import on_disk
from perflib.instruments.counters.counting import Counting
from perflib.instruments.counters.events import CounterEvent
from perflib.instruments.counters.groups import open_counter
from perflib.instruments.counters.on_disk import RECORD, CountFiles, coarser
from perflib.instruments.counters.series import MOST_BINS, Series
from perflib.instruments.counters.sets import events_of
from perflib.instruments.counters.watched import CounterTarget, watch
from perflib.model.errors import MeasurementError, UserError

SECOND = 1_000_000_000


def interval(at_s: float, values: list[float], elapsed_s: float = 1.0) -> NDArray[Any]:
    rows = np.zeros(len(values), dtype=RECORD)
    rows["time_ns"], rows["elapsed_ns"] = round(at_s * SECOND), round(elapsed_s * SECOND)
    rows["counter"], rows["value"] = np.arange(len(values)), values
    rows["on_ns"] = rows["all_ns"] = elapsed_s * SECOND
    return rows


def all_rows(files: CountFiles) -> NDArray[Any]:
    return np.concatenate(list(files.rows()))


# --- on disk -------------------------------------------------------------------------------------


def test_what_was_appended_is_there_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "_ROWS", 20)
    files = CountFiles(tmp_path / "counts", 10**9)
    for second in range(1, 58):
        files.append(interval(second, [second, 2.0 * second]))
    before = all_rows(files)
    files.close()
    again = CountFiles(tmp_path / "counts", 10**9)
    assert (all_rows(again) == before).all()
    assert list(tmp_path.rglob("*.parquet"))
    assert before["time_ns"].tolist() == sorted(before["time_ns"])
    assert before["value"].sum() == sum(3.0 * second for second in range(1, 58))
    again.close()


def test_files_stay_below_their_bound_and_lose_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "_ROWS", 1000)
    most = 30_000
    generator = np.random.default_rng(1)
    files = CountFiles(tmp_path / "counts", most)
    sums = np.zeros(5)
    for second in range(1, 2501):
        values = generator.integers(0, 10**6, 5).astype(float)
        sums += values
        files.append(interval(second, values.tolist()))
    rows = all_rows(files)
    assert [rows["value"][rows["counter"] == one].sum() for one in range(5)] == sums.tolist()
    assert rows["elapsed_ns"][rows["counter"] == 0].sum() == 2500 * SECOND
    assert files.merged > 0
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.parquet")]
    assert sum(sizes) <= most + max(sizes)
    assert rows["elapsed_ns"][-1] == SECOND  # the newest are as they came
    files.close()


def test_a_gap_is_not_bridged() -> None:
    parts = [interval(second, [1.0]) for second in (1, 2, 3, 10, 11, 12, 13)]
    merged = coarser(np.concatenate(parts), 4)
    begins = (merged["time_ns"] - merged["elapsed_ns"]) // SECOND
    assert list(zip(begins, merged["time_ns"] // SECOND, merged["value"], strict=True)) == [
        (0, 3, 3.0),
        (9, 13, 4.0),
    ]


def test_a_record_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    files = CountFiles(tmp_path, 10**9)
    for second in (1, 2):
        files.append(interval(second, [1.0, 2.0]))
    files.close()
    with (tmp_path / "tail").open("ab") as tail:
        tail.write(b"x" * (RECORD.itemsize - 1))
    files = CountFiles(tmp_path, 10**9)
    files.append(interval(3, [1.0, 2.0]))
    assert all_rows(files)["time_ns"].tolist() == [second * SECOND for second in (1, 1, 2, 2, 3, 3)]
    files.close()


def test_killed_between_a_file_and_its_tail_nothing_is_twice(tmp_path: Path) -> None:
    files = CountFiles(tmp_path, 10**9)
    for second in range(1, 6):
        files.append(interval(second, [1.0]))
    files._write(files._of_tail(), 0)
    files.close()
    files = CountFiles(tmp_path, 10**9)
    assert all_rows(files)["value"].sum() == 5
    files.append(interval(6, [1.0]))
    assert all_rows(files)["value"].sum() == 6
    files.close()


def test_killed_while_files_were_merged_nothing_is_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "_ROWS", 10)
    files = CountFiles(tmp_path, 10**9)
    for second in range(1, 41):
        files.append(interval(second, [1.0]))
    both = files._files()[:2]
    files._write(coarser(np.concatenate([on_disk._read(path) for path in both]), 4), 1)
    (tmp_path / "counts-left.new").write_bytes(b"half")
    files.close()
    files = CountFiles(tmp_path, 10**9)
    assert all_rows(files)["value"].sum() == 40
    assert not [path for path in both if path.exists()]
    assert not list(tmp_path.glob("*.new"))
    files.close()


def test_a_full_disk_loses_nothing_that_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CountFiles(tmp_path, 10**9)
    files.append(interval(1, [1.0]))
    write = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) > 8:
            return write(descriptor, data[:8])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(MeasurementError, match="make room"):
            files.append(interval(2, [1.0]))
    files.append(interval(3, [1.0]))
    assert all_rows(files)["time_ns"].tolist() == [SECOND, 3 * SECOND]
    files.close()


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    files = CountFiles(tmp_path, 10**9)
    (tmp_path / "counts-00000000000000000000-00000000000000000009-00.parquet").write_bytes(b"no")
    with pytest.raises(UserError):
        all_rows(files)
    files.close()
    (tmp_path / "counters.json").write_text("{")
    files = CountFiles(tmp_path, 10**9)
    with pytest.raises(UserError, match="damaged"):
        files.names([("a", "b", "")])
    files.close()


# --- in memory -----------------------------------------------------------------------------------


def test_a_series_is_bounded_and_adds_up() -> None:
    series = Series(2)
    generator = np.random.default_rng(2)
    sums = np.zeros(2)
    for second in range(1, 5000):
        values = generator.integers(0, 100, 2).astype(float)
        sums += values
        series.add(interval(second, values.tolist()))
    table = series.table([module.Counted("a", "s", ""), module.Counted("b", "s", "ns")])
    bins = table["bin"].nunique()
    assert MOST_BINS / 2 <= bins <= MOST_BINS
    assert table.groupby("event")["value"].sum().tolist() == sums.tolist()
    assert series.elapsed_s == 4999
    assert series.intervals == 4999
    first = table[table["event"] == "a"]
    ends = (first["start_ns"] + first["span_ns"]).tolist()
    assert ends == sorted(ends)
    assert ends[-1] == 4999 * SECOND
    assert (first["span_ns"] == first["elapsed_ns"]).all()  # there was no gap


# --- counting ------------------------------------------------------------------------------------


def software(folder: Path, **given: Any) -> Counting:
    sets = {"software": events_of("software")}
    return Counting(sets, ["vm-page-faults"], watch(tid=0), folder, most_bytes=10**9, **given)


def test_counts_of_this_thread(tmp_path: Path) -> None:
    with software(tmp_path) as counting:
        names = [one.event for one in counting.counters]
        if "page-faults" not in names:
            pytest.skip(f"cannot be counted here: {counting.refused}")
        touched = np.ones(64 << 20, dtype=np.uint8)
        counting.tick()
        counting.tick()
        table = counting.series.table(counting.counters)
    value = {
        (int(one["bin"]), str(one["event"])): float(one["value"])
        for one in table.to_dict("records")
    }
    assert touched.all()
    assert value[0, "page-faults"] > 0
    assert value[0, "task-clock"] > value[1, "task-clock"]
    assert value[0, "vm-page-faults"] >= value[0, "page-faults"]
    assert (table["on_ns"] <= table["all_ns"]).all()


def test_sets_take_turns_and_each_is_seen_for_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of a processor, in whose place the kernel's clock is opened."""

    def slowly(files: CountFiles, record: NDArray[Any]) -> None:
        sum(range(200_000))  # as this thread is counted, what is not seen meanwhile is missing
        append(files, record)

    def opener(
        event: CounterEvent, target: CounterTarget, leader: int, *, inherit: bool, off: bool
    ) -> int:
        clock = event if event.name == "clock" else replace(event, type=1, config=1, cpu="")
        return open_counter(clock, target, leader, inherit=inherit, off=off)

    append = CountFiles.append
    monkeypatch.setattr(CountFiles, "append", slowly)
    sets = {name: [CounterEvent(name, type=4, config=1)] for name in ("one", "other")}
    with Counting(sets, [], watch(tid=0), tmp_path, most_bytes=10**9, opener=opener) as counting:
        if not counting.counters:
            pytest.skip(f"cannot be counted here: {counting.refused}")
        for _ in range(20):
            sum(range(20_000))
            counting.tick()
        rows = all_rows(counting.files)
        table = counting.series.table(counting.counters)
    on = (rows["value"] > 0).reshape(-1, 2)
    assert (on.sum(axis=1) == 1).all()  # one at a time
    assert on.sum(axis=0).tolist() == [10, 10]  # each once in a round
    assert len(np.unique(np.diff(on[:, 0].astype(int)))) == 3  # in no fixed order
    totals = table.groupby("event")[["on_ns", "all_ns"]].sum()
    assert (totals["on_ns"] < totals["all_ns"]).all()
    assert totals["on_ns"].sum() > 0.9 * totals["all_ns"].max()


def test_a_recording_goes_on_with_its_own_names(tmp_path: Path) -> None:
    with software(tmp_path) as counting:
        counting.tick()
        before = counting.counters
    with software(tmp_path) as counting:
        assert counting.counters == before
        assert counting.series.intervals == 1
        counting.tick()
        assert counting.series.intervals == 2
    with Counting({}, [], watch(tid=0), tmp_path, most_bytes=10**9) as counting:
        assert counting.counters == before  # what cannot be counted any more keeps its numbers
        counting.tick()
        assert counting.series.intervals == 2  # of nothing there is no interval


def test_cpus_that_come_and_go_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "_CPUS_EVERY_S", -1.0)
    now = [here[:1], here[:1], here]
    sets = {"software": events_of("software")}
    with Counting(
        sets, [], watch(cpus=here[:1]), tmp_path, most_bytes=10**9, online=lambda: now.pop(0)
    ) as counting:
        if not counting.counters:
            pytest.skip(f"cannot be counted here: {counting.refused}")
        for _ in range(3):
            counting.tick()
        assert len(counting.watched.targets) == len(here)
        counting._online = lambda: here
        counting.tick()
        table = counting.series.table(counting.counters)
    if len(here) > 1:
        assert counting.remarks == [f"CPU {', '.join(map(str, here[1:]))} came"]
    assert (table["value"] >= 0).all()
    assert (table["all_ns"] >= table["on_ns"]).all()


_ENDLESS = """
import sys
from pathlib import Path
from perflib.instruments.counters.counting import Counting
from perflib.instruments.counters.watched import CounterTarget, watch
with Counting({}, ["vm-page-faults"], watch(tid=0), Path(sys.argv[1]), most_bytes=10**9) as one:
    while True:
        one.tick()
        print(one.series.intervals, flush=True)
"""


def test_kill_9_loses_one_interval_at_most(tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    with job:
        while int(job.stdout.readline() or -1) < 50:
            assert job.poll() is None
            time.sleep(0)
        job.send_signal(signal.SIGKILL)
        said = [int(line) for line in job.stdout.read().split() if line.isdigit()]
    files = CountFiles(tmp_path, 10**9)
    kept = len(all_rows(files))
    files.close()
    last = max([50, *said[:-1]])  # the last line may itself be cut off
    assert kept >= last
