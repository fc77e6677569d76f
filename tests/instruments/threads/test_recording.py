"""The files of a recording, and what is looked up in them."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.instruments.profile import views
from perflib.instruments.threads import writer as writing
from perflib.instruments.threads.formats import (
    FORMAT,
    INTERVAL,
    LOST,
    SAMPLE,
    Lock,
    Selection,
    State,
)
from perflib.instruments.threads.intervals import mark_lost, states_in_bins
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.samples import cpu_samples, off_cpu_samples, wait_samples
from perflib.instruments.threads.waits import lock_waits
from perflib.instruments.threads.writer import Writer
from perflib.model.errors import MeasurementError, UserError
from tests.instruments.threads.made import LOCKS, STACKS, made_recording, recording_of, write
from tests.reference.thread_states import Interval, lost_flags

ODD_NAMES = ["", "a;b c", "wörker\udcff", "tab\tand\nline", "[x] 10/20"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return made_recording(tmp_path_factory.mktemp("recording"), threads=5, seconds=1.0)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    lost = np.array([(10, 20, 1, 5)], dtype=LOST)
    locks = [Lock("a lock", "rwlock", 2**63 - 1, 7)]
    threads = pd.DataFrame(
        {
            "tid": range(5),
            "pid": 1,
            "name": pd.Series(ODD_NAMES, dtype=object),  # Arrow's texts are UTF-8 only
            "start_ns": 0,
            "end_ns": 100,
        }
    )
    intervals = np.array([(0, 10, 0, 0, 1, -1, -1, -1), (10, 30, 2, 2, -1, 0, 3, 1)], INTERVAL)
    samples = np.array([(5, 4, 0, 10)], dtype=SAMPLE)
    stacks = ["main;f\u2028g", "", "a\rb"]
    written = write(
        tmp_path / "new" / "one",
        threads=threads,
        intervals=intervals,
        rows=[4, 1],
        samples=samples,
        stacks=stacks,
        locks=locks,
        lost=lost,
        meta={"backend": "perf", "end_ns": 100, "remarks": ["odd"], "lost": {"events": 5}},
    )
    read = Recording.open(written.folder)
    for one in (written, read):
        pd.testing.assert_frame_equal(one.threads, threads, check_dtype=False)
        assert one.first.tolist() == [0, 0, 1, 1, 1, 2]
        assert one.intervals["start_ns"].tolist() == [10, 0]
        assert one.intervals[0].tolist() == (10, 30, 2, 3, -1, 0, 3, 1)  # and it touches the lost
        assert one.samples.tolist() == samples.tolist()
        assert one.lost.tolist() == lost.tolist()
        assert one.stacks == stacks
        assert one.locks == locks
        assert one.meta["backend"] == "perf"
        assert (one.meta["cut"], one.meta["cpus"], one.meta["remarks"]) == ("", 1, ["odd"])
    assert {path.name for path in written.folder.iterdir()} == {
        *("meta.json", "threads.npy", "intervals.npy", "samples.npy", "lost.npy", "stacks.txt")
    }


def test_pieces_in_any_turn_give_what_one_piece_gives(
    tmp_path: Path, made: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals come by time, threads mixed; some threads are left out; locks are renamed."""
    monkeypatch.setattr(writing, "_PIECE", 37)
    rows = np.repeat(np.arange(5), np.diff(made.first))
    order = np.argsort(made.intervals["start_ns"], kind="stable")
    with Writer(tmp_path) as writer:
        for at in range(0, len(order), 101):
            piece = order[at : at + 101]
            writer.add(rows[piece], made.intervals[piece])
        for at in range(0, len(made.samples), 50):
            writer.add_samples(made.samples[at : at + 50])
        writer.close(
            threads=made.threads,
            stacks=STACKS,
            locks=LOCKS[::-1],
            lost=None,
            meta=made.meta,
            lock_of=[3, 2, -1, 0],
            keep=np.array([True, False, True, True, False]),
        )
    found = Recording.open(tmp_path)
    assert found.threads["tid"].tolist() == [100, 102, 103]
    for row, was in enumerate([0, 2, 3]):
        mine = found.intervals[found.first[row] : found.first[row + 1]]
        theirs = made.intervals[made.first[was] : made.first[was + 1]]
        for name in ("start_ns", "end_ns", "state", "cpu", "stack"):
            assert mine[name].tolist() == theirs[name].tolist()
        assert mine["lock"].tolist() == [[3, 2, -1, 0, -1][lock] for lock in theirs["lock"]]
        assert mine["other"].tolist() == [[0, -1, 1, 2, -1, -1][one] for one in theirs["other"]]
    kept = np.isin(made.samples["thread"], [0, 2, 3])
    assert found.samples["time_ns"].tolist() == made.samples["time_ns"][kept].tolist()
    assert set(found.samples["thread"].tolist()) == {0, 1, 2}


def test_intervals_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="intervals of thread 0 overlap"):
        recording_of(tmp_path, [[(0, 10, 0), (5, 20, 1)]])
    with pytest.raises(UserError, match="has no recording of threads"):
        Recording.open(tmp_path)
    with pytest.raises(MeasurementError, match="overlap"):
        recording_of(tmp_path, [[(10, 0, 0)]])
    none = pd.DataFrame(columns=["tid", "pid", "name", "start_ns", "end_ns"])
    with pytest.raises(MeasurementError, match="row 3 of 0 threads"):
        write(tmp_path, threads=none, intervals=np.zeros(1, INTERVAL), rows=[3], meta={})


def test_samples_that_come_late_are_put_in_order(tmp_path: Path) -> None:
    threads = pd.DataFrame({"tid": [1], "pid": [1], "name": ["a"], "start_ns": [0], "end_ns": [9]})
    with Writer(tmp_path) as writer:
        for times in ([30, 10], [20, 40]):
            writer.add_samples(np.array([(time, 0, -1, 1) for time in times], dtype=SAMPLE))
        writer.close(threads=threads, stacks=[], locks=[], lost=None, meta={})
    assert Recording.open(tmp_path).samples["time_ns"].tolist() == [10, 30, 30, 40]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 1)), max_size=20),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 20), st.integers(-1, 1)), max_size=3),
)
def test_lost_events_mark_what_they_touch(
    drawn: list[tuple[int, int, int]], spans: list[tuple[int, int, int]]
) -> None:
    time, intervals = 0, []
    for state, length, cpu in drawn:
        intervals.append(Interval(time, time + length, state, 0, cpu))
        time += length
    lost = [(start, start + length, cpu, 1) for start, length, cpu in spans]
    marked = np.array(intervals, dtype=INTERVAL)
    mark_lost(marked, np.array([0, len(marked)]), np.array(lost, dtype=LOST))
    flags = marked["flags"].tolist()
    assert flags == [lost_flags(one, lost) for one in intervals]


# --- folders that are none -----------------------------------------------------------------------


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "not there"):
        with pytest.raises(UserError, match=r"has no recording of threads: no meta\.json"):
            Recording.open(folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="has no recording of threads"):
        Recording.open(tmp_path / "file")
    for other in ("[1]", "{}", '{"format": "x"}'):
        (tmp_path / "meta.json").write_text(other)
        with pytest.raises(UserError, match=r"its meta\.json is something else"):
            Recording.open(tmp_path)


def test_a_recording_of_a_later_perflib(tmp_path: Path) -> None:
    recording_of(tmp_path, [[(0, 10, 0)]])
    change_meta(tmp_path, format=FORMAT + 1)
    with pytest.raises(UserError, match=f"has format {FORMAT + 1}, written by a later perflib"):
        Recording.open(tmp_path)


def change_meta(folder: Path, **changes: Any) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | changes))


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("threads.npy", "gone", "threads.npy: No such file"),
        ("intervals.npy", "gone", "intervals.npy: No such file"),
        ("stacks.txt", "gone", "stacks.txt: No such file"),
        ("intervals.npy", "cut", "intervals.npy"),
        ("samples.npy", "cut", "samples.npy"),
        ("stacks.txt", "cut", r"it has \d of 7 stacks"),
        ("meta.json", "cut", "meta.json"),
        ("lost.npy", "emptied", "lost.npy"),
        ("meta.json", "emptied", "meta.json"),
    ],
)
def test_a_damaged_folder_is_reported(tmp_path: Path, name: str, change: str, why: str) -> None:
    made_recording(tmp_path, threads=3, seconds=0.1)
    path = tmp_path / name
    whole = path.read_bytes()
    path.unlink()
    if change != "gone":
        path.write_bytes(b"" if change == "emptied" else whole[:-40])
    with pytest.raises(UserError, match=f"damaged: {why}.*recorded again"):
        Recording.open(tmp_path)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    made_recording(tmp_path, threads=3, seconds=0.1)
    names = json.loads((tmp_path / "meta.json").read_text())["names"]
    change_meta(tmp_path, names=names[:2])
    with pytest.raises(UserError, match="do not belong together"):
        Recording.open(tmp_path)
    change_meta(tmp_path, names=names, locks=[{"nme": "x"}])
    with pytest.raises(UserError, match="damaged"):
        Recording.open(tmp_path)
    change_meta(tmp_path, locks=[])
    np.save(tmp_path / "samples.npy", np.zeros(3))
    with pytest.raises(UserError, match=r"samples\.npy has other records"):
        Recording.open(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps({"format": 1, "backend": "x"}))
    with pytest.raises(UserError, match=r"meta\.json lacks clock"):
        Recording.open(tmp_path)


# --- what is looked up ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Reading `.npy`")
def test_no_bytes_whatever_end_in_a_traceback(tmp_path: Path) -> None:
    """Bytes are changed anywhere in the headers and in meta.json."""
    made_recording(tmp_path, threads=2, seconds=0.02)
    rng = random.Random(5)
    for _ in range(120):
        path = tmp_path / rng.choice(["meta.json", "threads.npy", "intervals.npy", "stacks.txt"])
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(min(len(whole), 128))] = rng.randrange(256)
        path.write_bytes(damaged)
        # Anything but a UserError fails here; a byte may also change nothing that matters.
        with contextlib.suppress(UserError):
            assert Recording.open(tmp_path).folder == tmp_path
        path.write_bytes(whole)


def test_at_says_what_a_thread_does(tmp_path: Path) -> None:
    first = [(0, 10, 0, 0, 1), (10, 30, 2, 1, -1, 0, 1, 2), (40, 50, 3, 2)]
    recording = recording_of(tmp_path, [first, []], names=["a", "b"])
    assert recording.at(0, 0)["state"] == "running"
    assert recording.at(0, 29) == {
        "state": "waiting",
        "start_ns": 10,
        "end_ns": 30,
        "cpu": -1,
        "lock": "output_module",
        "holder": "b",
        "stack": STACKS[2],
        "lost": True,
        "sampled": False,
    }
    assert recording.at(0, 45)["sampled"]
    for row, time in ((0, -1), (0, 30), (0, 50), (1, 5)):
        assert recording.at(row, time) == {}
    with pytest.raises(UserError, match="there is no thread 2: rows go from 0 to 1"):
        recording.at(2, 5)
    with pytest.raises(UserError, match="there is no thread -1"):
        recording.at(-1, 5)


def test_no_bins_are_refused(made: Recording) -> None:
    with pytest.raises(UserError, match="bins=0"):
        states_in_bins(made, 0, Selection(0, 10))


def test_samples_go_into_the_views(made: Recording) -> None:
    cpu = cpu_samples(made)
    runs = made.intervals[made.intervals["state"] == 0]
    total = int((runs["end_ns"] - runs["start_ns"]).sum())
    assert views.top_down(cpu, "period").total == total
    assert set(views.flat(cpu, "period")["function"]) >= {"physics", "scatter", "prepare"}
    assert views.callers(cpu, "scatter", "period")["caller"].tolist() == ["physics"]
    assert set(cpu["symbol"].unique()) == {"physics", "scatter", "prepare"}
    assert set(views.select(cpu, thread="event-1")["tid"]) == {102}
    some = cpu_samples(made, Selection(None, made.start_ns + 5 * 10**8, [1, 2]))
    assert set(some["tid"]) == {101, 102}
    assert some["time_ns"].max() < made.start_ns + 5 * 10**8
    waits = wait_samples(made)
    assert int(waits["period"].sum()) == round(lock_waits(made)["total_s"].sum() * 1e9)
    assert views.bottom_up(waits, "period").total == int(waits["period"].sum())
    only = wait_samples(made, lock=0)
    assert set(only["stack"].unique()) == {STACKS[0]}
    assert set(only["event"].unique()) == {"wait"}


def test_time_without_a_core_by_stack_and_state(tmp_path: Path) -> None:
    intervals = [
        (0, 2, State.RUNNING),
        (2, 7, State.WAITING, 0, -1, 0, -1, 0),
        (7, 9, State.READY, 0, -1, 0, -1, 0),
        (9, 12, State.READY),
        (12, 20, State.SLEEPING, 0, -1, -1, -1, 3),
    ]
    made = recording_of(tmp_path, [intervals])
    table = off_cpu_samples(made)
    assert dict(zip(table["stack"].astype(str), table["period"], strict=True)) == {
        "main;event_loop;output;lock_wait;[waiting]": 5,
        "main;event_loop;output;lock_wait;[ready]": 2,
        "[ready]": 3,
        "main;join;[sleeping]": 8,
    }
    assert views.top_down(table, "period").total == 18
    part = off_cpu_samples(made, Selection(5, 14), [State.WAITING, State.SLEEPING])
    assert part["period"].tolist() == [2, 2]
    assert part["time_ns"].tolist() == [5, 12]
