"""Rounds: a trial of every configuration in each, in random order, until it is enough.

A machine whose speed drifts slows all trials of a round alike; a comparison within rounds does not
see it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perflib.measure.journal import Journal
from perflib.measure.process import WorkerError
from perflib.model.errors import MeasurementError

Columns = dict[str, list[Any]]
_CHECKS_GROW = 1.15  # precision is computed each time the run has grown by this factor
_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True)
class Status:
    """Where a running measurement stands; ``samples()`` builds the table of what there is."""

    elapsed_s: float
    left_s: float
    rounds: int
    half_width: float | None
    samples: Callable[[], pd.DataFrame]
    note: str = ""  # a sentence to show at once: what a pilot foretells


Progress = Callable[[Status], None]


def round_order(seed: int, round_: int, count: int) -> list[int]:
    """The order of configurations in a round: random, and the same when the run is resumed."""
    return random.Random(f"{seed}/{round_}").sample(range(count), count)


def frame_of(trials: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The tidy table of a journal's trials: one row a sample; a trial may lack columns."""
    parts: Columns = {}
    rows = 0
    for trial in trials:
        columns: Columns = trial.get("columns", {})
        count = len(next(iter(columns.values()), []))
        labels = {name: [trial[name]] * count for name in ("round", "position")}
        for name, values in {**labels, **columns}.items():
            parts.setdefault(name, [None] * rows).extend(values)
        rows += count
        for cells in parts.values():
            cells.extend([None] * (rows - len(cells)))
    return pd.DataFrame(parts)


def _left_s(elapsed_s: float, budget_s: float, half_width: float | None, target: float) -> float:
    left = max(0.0, budget_s - elapsed_s)
    if half_width is not None and 0 < half_width < float("inf"):
        left = min(left, max(0.0, elapsed_s * ((half_width / target) ** 2 - 1)))
    return left


def take_rounds(
    journal: Journal,
    configurations: int,
    trial: Callable[[int, int], Columns],
    *,
    seed: int,
    budget_s: float,
    least_s: float,
    target: float,
    half_width: Callable[[pd.DataFrame], float],
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> str:
    """Take rounds until the half-width is below ``target``, or ``budget_s`` is spent.

    Parameters
    ----------
    journal
        Where trials go, and those that were taken before are.
    configurations
        How many there are.
    trial
        ``trial(round, configuration)`` measures one and returns its columns, none to leave the
        configuration out of the round; a ``WorkerError`` costs that trial only, three in a row of
        one configuration end the run.
    seed
        Of the orders.
    budget_s, least_s
        The most and the least time to measure; what was measured before a resumption counts.
    target
        The half-width to reach, in the unit that ``half_width`` returns for the samples so far.
    progress
        Called after every trial.
    stop
        Ends the run after the current trial when set.

    Returns
    -------
    Why it ended: ``precise enough``, ``budget spent``, ``interrupted`` or ``failed``.
    """
    taken = {(entry["round"], entry["configuration"]) for entry in journal.trials}
    last_begun = max((number for number, _ in taken), default=-1)
    begin = time.monotonic() - sum(entry["wall_s"] for entry in journal.trials)
    next_check_s = least_s
    width: float | None = None
    failures = [0] * configurations

    def samples() -> pd.DataFrame:
        return frame_of(journal.trials)

    round_ = 0
    try:
        while True:
            for position, which in enumerate(round_order(seed, round_, configurations)):
                if (round_, which) in taken:
                    continue
                if stop is not None and stop.is_set():
                    return "interrupted"
                started = time.monotonic()
                entry: dict[str, Any] = {
                    "round": round_,
                    "position": position,
                    "configuration": which,
                }
                try:
                    columns = trial(round_, which)
                    failures[which] = 0
                    if not columns:
                        continue
                    entry["columns"] = columns
                except WorkerError as error:
                    entry["failed"] = str(error)
                    failures[which] += 1
                entry["wall_s"] = round(time.monotonic() - started, 6)
                journal.append(entry)
                if failures[which] == _FAILURES_IN_A_ROW:
                    return "failed"
                if progress is not None:
                    elapsed = time.monotonic() - begin
                    left = _left_s(elapsed, budget_s, width, target)
                    progress(Status(elapsed, left, round_, width, samples))
            round_ += 1
            if round_ <= last_begun:  # one that was cut off is finished, whatever it takes
                continue
            elapsed = time.monotonic() - begin
            if elapsed >= budget_s:
                return "budget spent"
            if elapsed >= next_check_s and not (table := samples()).empty:
                width = half_width(table)
                if width <= target:
                    return "precise enough"
                next_check_s = elapsed * _CHECKS_GROW
    except KeyboardInterrupt:
        return "interrupted"
    except MeasurementError as error:
        if not journal.trials:
            raise
        msg = f"{error}\n{len(journal.trials)} trials are kept: see 'perflib runs'"
        raise MeasurementError(msg) from error
