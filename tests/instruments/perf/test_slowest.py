"""The slowest events: which are kept, within which bounds; perf's part is replayed or short."""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from perflib.instruments.joblog.joblog import Begun, JobEvent
from perflib.instruments.joblog.logformat import LogFormat
from perflib.instruments.joblog.wanted import Wanted
from perflib.instruments.perf import event_profile, slowest
from perflib.instruments.perf.event_profile import Sampling, profile_job
from perflib.instruments.perf.slowest import Slowest
from perflib.model.errors import MeasurementError
from tests.instruments.perf.test_recorder import needs_perf

NAMED = LogFormat(r"begin (?P<event>\w+)", r"end (?P<event>\w+)")
MS = 1_000_000


class Pieces:
    """A recorder whose pieces are texts of one sample a millisecond, of all that is in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, number: int, first_ms: int, last_ms: int) -> None:
        (self.folder / f"data.{number:06d}").write_text(f"{first_ms} {last_ms}")

    @property
    def pieces(self) -> list[Path]:
        return sorted(self.folder.glob("data.*"))

    def script(self, out: Path, *, data: Path, ranges: list[tuple[int, int]]) -> Path:
        first, last = map(int, data.read_text().split())
        with out.open("w") as file:
            for ms in range(first, last):
                at = ms * MS
                if any(low <= at <= high for low, high in ranges):
                    file.write(f"job 7/7 [000] {ms // 1000}.{at % 10**9:09d}: 1 cpu-clock: ")
                    file.write(f"4f0 f{ms}+0x1 (/gone)\n")
        return out


def span(piece: Path) -> tuple[int, int]:
    first, last = map(int, piece.read_text().split())
    return first * MS, last * MS


def follow(keeper: Slowest, pieces: Pieces, events: list[JobEvent], name: str = "") -> None:
    """The events one after the other, and pieces that are read as soon as they are there."""
    keeper._recorder = pieces  # type: ignore[assignment]
    keeper._span = span  # type: ignore[method-assign]
    number, piece_ms = 0, 100
    for one in events:
        keeper.begin(Begun(one.label, one.begin_ns), one_at_a_time=True)
        keeper.end(one, name)
        while one.end_ns > (number + 1) * piece_ms * MS:
            pieces.add(number, number * piece_ms, (number + 1) * piece_ms)
            number += 1
            with keeper._lock:
                kept = keeper._candidates()
                since = min([keeper._latest_ns, *keeper._open.values()])
            wanted = [(kept_one.begin_ns, kept_one.end_ns) for kept_one in kept]
            keeper._read(pieces.pieces[0], [*wanted, (since, 1 << 62)])
    pieces.add(number, number * piece_ms, (number + 1) * piece_ms)


def in_row(times_ms: list[int]) -> list[JobEvent]:
    edges = [0, *itertools.accumulate(ms * MS for ms in times_ms)]
    return [JobEvent(n, *span_) for n, span_ in enumerate(itertools.pairwise(edges))]


@pytest.mark.parametrize("seed", range(3))
def test_the_slowest_are_kept_with_all_their_samples(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    times = [chance.choice([3, 4, 5, 6, 7, 20, 40]) for _ in range(300)]
    events = in_row(times)
    keeper, pieces = Slowest(5, 1000), Pieces(tmp_path)
    follow(keeper, pieces, events)
    kept = keeper.finish()
    slow = [one for one, name in kept.events if name == "slowest"]
    assert len(slow) == 15
    assert sorted(one.time_ns for one in slow) == sorted(ms * MS for ms in times)[-15:]
    for one in slow:
        inside = kept.samples["time_ns"].between(one.begin_ns, one.end_ns - 1)
        assert inside.sum() == one.time_ns // MS
    others = [one for one, name in kept.events if name == "others"]
    assert {one.label for one in others}.isdisjoint(one.label for one in slow)
    assert kept.problems == []
    assert "15 slowest among 300 events" in kept.remarks[0]
    assert not list(tmp_path.iterdir())  # neither pieces nor texts are left


def test_each_class_has_slowest_events_of_its_own(tmp_path: Path) -> None:
    keeper, pieces = Slowest(10, 1000), Pieces(tmp_path)
    follow(keeper, pieces, in_row([5] * 50 + [30]), "Zee")
    for one in in_row([50] * 20):
        keeper.end(one, "ttbar")
    names = [name for _, name in keeper.finish().events]
    assert names.count("Zee slowest") == 6
    assert names.count("ttbar slowest") == 2


def test_what_is_kept_does_not_grow_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slowest, "_MAX_SAMPLES", 500)  # half a second of samples
    chance = random.Random(1)
    times = [chance.randint(3, 9) for _ in range(1500)]
    times[7] = times[750] = 60  # the first of them long before any bound is met
    keeper, pieces = Slowest(5, 1000), Pieces(tmp_path)
    follow(keeper, pieces, in_row(times))
    (one,) = keeper._classes.values()
    assert one.slow_ns <= 500 * MS
    assert one.others_ns <= 500 * MS
    kept = keeper.finish()
    slow = [one.label for one, name in kept.events if name == "slowest"]
    assert {7, 750} <= set(slow)
    assert len(slow) < 75
    assert "no room for 75" in kept.remarks[0]
    assert len(kept.samples) <= 1100


def test_the_jobs_own_timing_counts_more_than_late_lines(tmp_path: Path) -> None:
    keeper, pieces = Slowest(1, 1000), Pieces(tmp_path)
    late = JobEvent(1, 0, 90 * MS, reported_seconds=0.005)
    slow = JobEvent(2, 90 * MS, 110 * MS, reported_seconds=0.019)
    follow(keeper, pieces, [late, slow])
    kept = keeper.finish()
    assert [(one.label, name) for one, name in kept.events] == [(2, "slowest"), (1, "others")]
    assert "of 19 ms and more" in kept.remarks[0]


def test_a_piece_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    keeper, pieces = Slowest(10, 1000), Pieces(tmp_path)
    broken = MeasurementError("perf script could not read it")
    pieces.script = Mock(side_effect=broken)  # type: ignore[method-assign]
    follow(keeper, pieces, in_row([5] * 10))
    (problem,) = keeper.finish().problems
    assert problem == "a part of the samples could not be read: perf script could not read it"


JOB = """
import time
def work(ms):
    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass
for n in range(40):
    print("begin", f"e{n}", flush=True)
    work(250 if n in (11, 31) else 10)
    print("end", f"e{n}", flush=True)
"""


@needs_perf
def test_known_slow_events_are_found_for_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_profile, "PIECE_KIB", 64)  # several, in so short a job
    profile = profile_job(
        [sys.executable, "-c", JOB],
        NAMED,
        Wanted(".*"),
        folder=tmp_path,
        timeout_s=120,
        sampling=Sampling(event="cpu-clock", frequency_hz=2000, call_graph="fp"),
        slowest=Slowest(15, 2000),  # six: a busy machine makes others slow, too
    )
    assert profile.kept is not None
    slow = {one.job_event.label: one for one in profile.events if one.name == "slowest"}
    assert {"e11", "e31"} <= set(slow)
    assert len(slow) == 6
    for name in ("e11", "e31"):
        assert slow[name].coverage.samples > 20
        assert slow[name].coverage.covered_percent > 50
    assert profile.lost == 0
    assert not list(tmp_path.glob("*.data*"))
