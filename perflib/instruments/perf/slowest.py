"""The slowest events of a job, chosen from their own times when these are known.

perf records all the time, into data files of some MiB each. A piece is read when others have come
after it: samples of events that may still be among the slowest are kept as text, the rest is
dropped with the piece. So what is on the disk does not grow with the job.

Why not perf's own ring (``--overwrite``, a snapshot at each slow event)? It works with perf 6.1, 29
ms and a gap of up to 5 ms a snapshot. But an ordinary user's ring has 516 KiB
(``kernel.perf_event_mlock_kb``): 1.7 s at 4000 samples a second, and an event that is longer has
lost its beginning.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from perflib.instruments.joblog.joblog import Begun, JobEvent
from perflib.instruments.perf import script
from perflib.instruments.perf.data import PerfData, Type, lost
from perflib.instruments.perf.recorder import Recorder
from perflib.model.errors import MeasurementError, UserError

PIECE_KIB = 16 * 1024
"""The size of one data file."""

# pieces that wait to be read, and the most before one is lost
_SPOOL_PIECES, _MAX_SPOOL_PIECES = 4, 16
_MAX_SAMPLES = 300_000  # of the slowest events, and of others, by their times
_MAX_RANGES = 2000  # that one command line has room for
_MERGED_GAP_NS = 1_000_000  # ranges so close are read as one
_POLL_S = 0.5


@dataclass(frozen=True)
class Kept:
    """What is left of a recording.

    Parameters
    ----------
    events
        The slowest ones and some others, with the name of the group that each is in.
    samples
        Their samples, as `perflib.instruments.perf.script.read` makes them.
    lost
        How many samples perf lost, of all events.
    problems, remarks
        Sentences on what is missing, and on what was chosen.
    """

    events: list[tuple[JobEvent, str]]
    samples: pd.DataFrame
    lost: int
    problems: list[str]
    remarks: list[str]


@dataclass
class _Class:
    """The events of one class that may be kept."""

    seen: int = 0
    slow: list[tuple[int, int, JobEvent]] = field(default_factory=list)  # a heap, fastest first
    slow_ns: int = 0
    floor_ns: int = -1  # slower ones than this were dropped for lack of room
    others: list[JobEvent] = field(default_factory=list)
    others_ns: int = 0
    rate: float = 1.0  # the chance of an event to be among the others

    def add(self, event: JobEvent, chance: random.Random) -> None:
        self.seen += 1
        if _took_ns(event) > self.floor_ns:
            heapq.heappush(self.slow, (_took_ns(event), self.seen, event))
            self.slow_ns += event.time_ns
        if chance.random() < self.rate:
            self.others.append(event)
            self.others_ns += event.time_ns

    def drop_fastest(self) -> None:
        self.floor_ns, _, event = heapq.heappop(self.slow)
        self.slow_ns -= event.time_ns

    def halve_others(self, chance: random.Random) -> None:
        self.rate /= 2
        self.others = [event for event in self.others if chance.random() < 1 / 2]
        self.others_ns = sum(event.time_ns for event in self.others)


class Slowest:
    """Keeps the samples of each class's slowest events, and of others to compare them with.

    Parameters
    ----------
    percent
        How many of a class's events: rounded up.
    frequency_hz
        How often a thread is sampled: how many events there is room for follows from it.
    seed
        Of the choice of the others.
    """

    def __init__(self, percent: float, frequency_hz: int, seed: int = 1) -> None:
        self._percent = percent
        self._room_ns = _MAX_SAMPLES * 10**9 // frequency_hz
        self._random = random.Random(seed)
        self._classes: dict[str, _Class] = {}
        self._open: dict[tuple[str | None, int | str], int] = {}
        self._latest_ns = 0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._texts: list[Path] = []
        self._lost, self._dropped, self._failed = 0, 0, ""

    def start(self, recorder: Recorder) -> None:
        """Read a recorder's pieces as they come, until `finish`."""
        self._recorder = recorder
        self._thread = threading.Thread(target=self._follow, name="pieces", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Follow no more; before the recorder ends."""
        self._end.set()
        self._thread.join()

    # --- what the log reports --------------------------------------------------------------------

    def begin(self, begun: Begun, *, one_at_a_time: bool) -> None:
        """An event has begun; what was open is not, where events come one after the other."""
        with self._lock:
            self._latest_ns = begun.begin_ns
            if one_at_a_time:
                self._open = {key: at for key, at in self._open.items() if key[0] != begun.job}
            self._open[begun.job, begun.label] = begun.begin_ns

    def end(self, event: JobEvent, name: str) -> None:
        """An event of this class has ended."""
        with self._lock:
            self._latest_ns = event.end_ns
            self._open.pop((event.job, event.label), None)
            self._classes.setdefault(name, _Class()).add(event, self._random)
            classes = self._classes.values()
            while sum(one.slow_ns for one in classes) > self._room_ns:
                largest = max(classes, key=lambda one: one.slow_ns if len(one.slow) > 1 else -1)
                if len(largest.slow) < 2:
                    break
                largest.drop_fastest()
            while sum(one.others_ns for one in classes) > self._room_ns:
                max(classes, key=lambda one: one.others_ns).halve_others(self._random)

    # --- pieces ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        with contextlib.suppress(OSError):  # the thread that reads the log comes first
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        while not self._end.wait(_POLL_S):
            pieces = self._recorder.pieces
            for piece in pieces[_MAX_SPOOL_PIECES:]:  # faster than they are read: no room for more
                piece.unlink()
                self._dropped += 1
            for piece in pieces[: max(0, min(len(pieces), _MAX_SPOOL_PIECES) - _SPOOL_PIECES)]:
                with self._lock:
                    kept = self._candidates()
                    since = min([self._latest_ns, *self._open.values()])
                self._read(piece, [*((one.begin_ns, one.end_ns) for one in kept), (since, 1 << 62)])

    def _candidates(self) -> list[JobEvent]:
        return [
            event
            for one in self._classes.values()
            for event in (*(event for _, _, event in one.slow), *one.others)
        ]

    def _read(self, piece: Path, wanted: Sequence[tuple[int, int]]) -> None:
        """Keep the text of a piece's samples that are wanted, and remove the piece."""
        try:
            first, last = self._span(piece)
            ranges = [
                (max(begin, first), min(end, last))
                for begin, end in _merged(wanted)
                if begin <= last and end >= first
            ]
            if ranges:
                if len(ranges) > _MAX_RANGES:
                    ranges = []  # all of them: the rest is dropped at the end
                text = piece.parent / f"kept-{len(self._texts)}.txt"
                self._texts.append(self._recorder.script(text, data=piece, ranges=ranges))
        except (MeasurementError, UserError, OSError) as error:
            self._failed = self._failed or str(error)
        finally:
            piece.unlink(missing_ok=True)

    def _span(self, piece: Path) -> tuple[int, int]:
        """From when to when a piece has samples; its losses are counted."""
        first, last = 1 << 62, -1
        losses = np.zeros(2, dtype=np.int64)
        with PerfData(piece) as data:
            for records in data.records():
                times = records["time_ns"][records["type"] == Type.SAMPLE]
                losses += lost(records)
                if len(times):
                    first, last = min(first, int(times.min())), max(last, int(times.max()))
        self._lost += int(losses.max())
        return first, last

    # --- the end ---------------------------------------------------------------------------------

    def finish(self) -> Kept:
        """Choose, and read what is kept; after the recorder has ended."""
        events, remarks = self._chosen()
        wanted = [(event.begin_ns, event.end_ns) for event, _ in events]
        for piece in self._recorder.pieces:
            self._read(piece, wanted)
        parts, unread = [], 0
        for text in self._texts:
            with contextlib.suppress(UserError):  # there was none after all
                read = script.read(text)
                unread += read.unread_count
                parts.append(_within(read.samples, wanted))
            text.unlink()
        samples = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"time_ns": []})
        problems = []
        if self._dropped:
            problems.append(
                f"{self._dropped} data files of {PIECE_KIB // 1024} MiB were dropped unread: perf "
                "wrote them faster than they could be read; ask for fewer samples a second"
            )
        if self._failed:
            problems.append(f"a part of the samples could not be read: {self._failed}")
        if unread:
            problems.append(f"{unread} lines of perf's text could not be read")
        samples = samples.sort_values("time_ns", kind="stable", ignore_index=True)
        return Kept(events, samples, self._lost, problems, remarks)

    def _chosen(self) -> tuple[list[tuple[JobEvent, str]], list[str]]:
        events: list[tuple[JobEvent, str]] = []
        remarks = []
        for name, one in self._classes.items():
            wanted = math.ceil(self._percent / 100 * one.seen - 1e-9)
            slow = [event for _, _, event in heapq.nlargest(wanted, one.slow)]
            chosen = set(slow)
            fast = [event for event in one.others if event not in chosen]
            events += [(event, f"{name} slowest".lstrip()) for event in slow]
            events += [(event, f"{name} others".lstrip()) for event in fast]
            of = f" of {name}" if name else ""
            short = f"; there was no room for {wanted}" if len(slow) < wanted else ""
            remarks.append(
                f"Kept are the {len(slow)} slowest{of} among {one.seen} events, of "
                f"{_took_ns(slow[-1]) / 1e6:.4g} ms and more{short}, and {len(fast)} others chosen "
                "at random."
            )
        return events, remarks


def _took_ns(event: JobEvent) -> int:
    """How long an event took by the job's own timing; by its lines where the job gives none.

    Lines come late where the machine is busy, and the job knows nothing of that.
    """
    seconds = event.reported_seconds
    return event.time_ns if seconds is None else round(1e9 * seconds)


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1] + _MERGED_GAP_NS:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _within(samples: pd.DataFrame, wanted: Sequence[tuple[int, int]]) -> pd.DataFrame:
    spans = np.array(_merged(wanted), dtype=np.int64).reshape(-1, 2)
    times = samples["time_ns"].to_numpy()
    at = np.searchsorted(spans[:, 0], times, side="right") - 1
    inside = (at >= 0) & (times <= spans[np.maximum(at, 0), 1]) if len(spans) else at > 0
    return samples[inside]
