"""A table of running counts in a terminal, drawn over itself; plain lines in a log."""

from __future__ import annotations

import math
import shutil
import sys
import time
from typing import TYPE_CHECKING

from perflib.measure.progress import Working, left
from perflib.model.escape import visible

if TYPE_CHECKING:
    import pandas as pd

    from perflib.measure.schedule import Status

_BARS = "▁▂▃▄▅▆▇█"
_LAST = 24  # parts of the time in a line of bars
_SHARE = 0.01  # of a core that drawing may take
_LEAST_S = 1.0
_NAME = 26


class CountTable(Working):
    """Shows a measurement's counts; use as a context manager and pass it as ``progress``."""

    _lines = 0
    _next_s = 0.0

    def __call__(self, status: Status) -> None:
        """Draw the table, as often as a hundredth of a core allows."""
        now = time.monotonic()
        if self._mode == "none" or now < self._next_s:
            return
        cpu_s = time.thread_time()
        rows = lines_of(status.samples())
        head = f"{status.elapsed_s:.0f} s{left(status.left_s)}"
        if self._mode == "bar":
            self._draw([f"{self._title}: {head}", *rows])
        else:
            self._log("; ".join([head, *(" ".join(row.split()[:3]) for row in rows[1:6])]))
        cost_s = time.thread_time() - cpu_s
        self._next_s = time.monotonic() + max(_LEAST_S, cost_s / _SHARE)

    def _draw(self, lines: list[str]) -> None:
        width, height = shutil.get_terminal_size()
        shown = [line[: width - 1] for line in lines[: height - 2]]
        up = f"\x1b[{self._lines}A" if self._lines else ""
        sys.stderr.write(up + "".join(f"\x1b[2K{line}\n" for line in shown))
        sys.stderr.flush()
        self._lines = len(shown)


def lines_of(samples: pd.DataFrame) -> list[str]:
    """A line an event: its rate in the last part of the time, on average, its total, its course."""
    from perflib.experiments.counting.analyse import rates

    head = f"{'event':{_NAME}} {'now, per s':>12} {'mean, per s':>12} {'total':>14} {'seen':>6}"
    if samples.empty:
        return [head]
    series = rates(samples)
    elapsed_s = samples.groupby("bin")["elapsed_ns"].first().sum() / 1e9
    lines = [head]
    samples = samples if "cpu" in samples else samples.assign(cpu=-1)
    keys = ["set", "event", "cpu"]
    of_event = dict(iter(samples.groupby(keys, sort=False)))
    for key, part in series.groupby(keys, sort=False):
        mine = of_event[key]
        event, cpu = part["event"].iloc[0], part["cpu"].iloc[0]
        due = mine["all_ns"].sum()
        seen = mine["on_ns"].sum() / due if due > 0 else 1.0
        total = mine["value"].sum() / seen if seen > 0 else float("nan")
        known = part["per_s"].dropna()
        now = known.iloc[-1] if len(known) else float("nan")
        unit = mine["unit"].iloc[0]
        label = visible(f"{event} ({unit})" if unit else str(event))
        label = (label if cpu < 0 else f"{label} cpu{cpu}")[:_NAME]
        lines.append(
            f"{label:{_NAME}} {_short(now):>12} {_short(total / elapsed_s):>12} "
            f"{_short(total):>14} {seen:>6.0%} {_course(known.tail(_LAST).tolist())}"
        )
    return lines


def _short(value: float) -> str:
    if math.isnan(value):
        return "not seen"
    return f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def _course(values: list[float]) -> str:
    most = max(values, default=0.0)
    if not most > 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(len(_BARS) * one / most))] for one in values)
