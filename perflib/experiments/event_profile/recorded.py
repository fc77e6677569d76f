"""What trials have in common: their samples as columns, problems, and the functions they met."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perflib.experiments.event_profile.alone import slices_of_samples
from perflib.instruments.perf import script as perfscript
from perflib.instruments.perf.event_profile import EventProfile
from perflib.instruments.profile.annotate import annotate
from perflib.instruments.profile.objects import build_id
from perflib.instruments.profile.views import merge_copies
from perflib.kernels import build, record
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Columns

_MIN_SAMPLES = 50  # of a function whose instructions are worth looking up
_POOR_COVERAGE_PERCENT = 95.0
_MAX_ROWS = 400_000  # of one trial: the journal has them as text
_MAX_OBJECTS = 200


class Recorded:
    """Makes a trial's columns, and remembers what is to be said of all trials."""

    def __init__(self) -> None:
        self._problems: dict[str, list[str]] = {}
        self._sampled: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()
        self._looked_up: set[str] = set()
        self._instructions: dict[str, list[int]] = {}
        self._objects: dict[str, str] = {}

    @property
    def problems(self) -> list[str]:
        """What was wrong; what differs between trials in its numbers only is said once."""
        return [
            first if not more else f"{first} (in {1 + len(more)} trials; the numbers are one's)"
            for first, *more in self._problems.values()
        ]

    @property
    def any(self) -> bool:
        """Whether any trial was recorded."""
        return bool(self._sampled)

    def _problem(self, sentence: str) -> None:
        self._problems.setdefault(re.sub(r"\d+(\.\d+)?", "#", sentence), []).append(sentence)

    def provenance(self) -> dict[str, Any]:
        """What was sampled, what is to be known of it, functions' instructions, and the files."""
        return {**self._sampled, "instructions": self._instructions, "objects": self._objects}

    def columns(
        self,
        profile: EventProfile,
        wanted: str,
        slices: Path | None = None,
        *,
        remove_maps: bool = False,
    ) -> Columns:
        """The samples of the wanted events, with each event's own times on its rows.

        Parameters
        ----------
        profile
            What was recorded.
        wanted
            What the wanted events are called; empty: they have no names.
        slices
            The file of the slices that the event was cut into.
        remove_maps
            Whether the job's processes were made to leave maps of their own code for perf.

        Raises
        ------
        WorkerError
            No wanted event was recorded, or none has a sample.
        """
        what = f"event {wanted}" if wanted else "the recording"
        if not profile.events:
            why = "; ".join(profile.problems) or "no reason known"
            msg = f"{what} was not recorded: {why}"
            raise WorkerError(msg)
        if not any(one.coverage.samples for one in profile.events):
            took_ms = sum(one.job_event.time_ns for one in profile.events) / 1e6
            took = f"no sample was taken during {what}, of {took_ms:g} ms"
            raise WorkerError("; ".join([took, *profile.problems]))
        samples, event_of = self._samples(profile)
        self._note(profile)
        if remove_maps:
            _remove_maps(samples)
        self._look_up(samples)
        self._note_objects(samples)
        columns = _columns(samples)
        if slices is not None:
            cut = np.fromfile(slices, dtype=record(build("kv"), "kv_slice"))
            columns |= slices_of_samples(samples["time_ns"].to_numpy(np.int64), cut)
        of_events = pd.DataFrame(
            {
                "event_name": [one.name for one in profile.events],
                "begin_ns": [one.job_event.begin_ns for one in profile.events],
                "event_time_ns": [one.job_event.time_ns for one in profile.events],
                "missed_begin_ns": [one.coverage.missed_begin_ns for one in profile.events],
                "missed_end_ns": [one.coverage.missed_end_ns for one in profile.events],
            }
        )
        if not wanted:
            of_events = of_events.drop(columns="event_name")
        return columns | {str(name): of_events[name][event_of].tolist() for name in of_events}

    def _samples(self, profile: EventProfile) -> tuple[pd.DataFrame, Any]:
        """The samples within the events, and for each the number of its event."""
        if profile.kept is not None:
            every = profile.kept
        else:
            read = perfscript.read(profile.samples)
            every = read.samples.sort_values("time_ns", kind="stable", ignore_index=True)
            if read.unread_count:
                first = read.unread[0]
                self._problem(
                    f"{read.unread_count} lines of perf's text could not be read, the first, line "
                    f"{first.line}: {first.reason}"
                )
        times = every["time_ns"].to_numpy(np.int64)
        begins = [one.job_event.begin_ns for one in profile.events]
        ends = [one.job_event.end_ns for one in profile.events]
        low = np.searchsorted(times, begins, side="left")
        high = np.searchsorted(times, ends, side="right")
        rows = np.concatenate([np.arange(*span) for span in zip(low, high, strict=True)])
        event_of = np.repeat(np.arange(len(low)), high - low)
        step = -(-len(rows) // _MAX_ROWS)
        samples = every.iloc[rows[::step]].reset_index(drop=True)
        if step > 1:
            known = samples["period"] > 0
            samples["period"] = samples["period"].where(~known, samples["period"] * step)
            self._problem(
                f"of {len(rows)} samples each {step}th is kept, and stands for {step}: ask for "
                "fewer a second (frequency_hz) to have all"
            )
        return samples, event_of[::step]

    def _note(self, profile: EventProfile) -> None:
        took = sum(one.job_event.time_ns for one in profile.events)
        missed = [one.coverage.missed_begin_ns for one in profile.events]
        covered = sum(
            one.coverage.covered_percent * one.job_event.time_ns / max(1, took)
            for one in profile.events
        )
        if covered < _POOR_COVERAGE_PERCENT:
            of = "an event" if len(missed) == 1 else f"{len(missed)} events"
            self._problem(
                f"only {covered:.0f} % of {of} was recorded: "
                f"{np.mean(missed) / 1e6:.1f} ms are missed at its begin"
            )
        for sentence in profile.problems:
            self._problem(sentence)
        self._sampled = {"sampled": profile.sampled, "remarks": profile.remarks}

    def _look_up(self, samples: pd.DataFrame) -> None:
        """Note where a function's instructions begin, while its file is still there."""
        merged = merge_copies(samples)
        here = Counter(merged["symbol"].astype(str))
        self._counts += here
        for function in here.keys() - self._looked_up - {"[unknown]"}:
            if self._counts[function] >= _MIN_SAMPLES:
                self._looked_up.add(function)  # once: what has no file will have none later
                table = annotate(merged, function).table
                offsets = sorted({int(at) for at in table["offset"][table["instruction"].notna()]})
                if offsets[:1] == [0]:
                    self._instructions[function] = offsets

    def _note_objects(self, samples: pd.DataFrame) -> None:
        """Note the builds of the files that samples are in, those with the most samples first."""
        for path in samples["object"].astype(str).value_counts().index:
            if len(self._objects) >= _MAX_OBJECTS:
                return
            if path.startswith("/") and path not in self._objects and (found := build_id(path)):
                self._objects[path] = found


def _columns(samples: pd.DataFrame) -> Columns:
    columns: Columns = {}
    for name in samples:
        values = samples[name]
        if name == "ip":  # DuckDB and JSON take signed numbers
            values = pd.Series(values.to_numpy(np.uint64).view(np.int64))
        columns[str(name)] = values.tolist()
    return columns


def _remove_maps(samples: pd.DataFrame) -> None:
    """Remove what CPython wrote for perf; it never does so itself."""
    for pid in samples["pid"].unique():
        Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)  # noqa: S108 perf's own place
