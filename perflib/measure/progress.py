"""Progress where it can be seen: a bar in a terminal, a widget in Jupyter, log lines in batch."""

from __future__ import annotations

import math
import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from perflib.measure.schedule import Status
from perflib.model.escape import visible
from perflib.store import config

_LOG_EVERY_S = 10.0
_ENDLESS_S = 1e7  # who gives such a budget ends the run by hand


def left(left_s: float) -> str:
    """How long it takes at most, for a list of words; nothing of a run without an end."""
    return f", {left_s:.0f} s left at most" if left_s < _ENDLESS_S else ""


def half_width(status: Status, unit: str = "") -> str:
    """How well the result is known so far, for a list of words; nothing before that."""
    known = status.half_width is not None and math.isfinite(status.half_width)
    return f", ±{status.half_width:.2f}{unit}" if known else ""


class Working:
    """Says now and then that long work continues, where log lines are wanted.

    Parameters
    ----------
    title
        What continues.
    mode
        ``bar``, ``log`` or ``none``; without it ``PERFLIB_PROGRESS`` or a configuration file says
        which, else what fits: a bar in a terminal and in Jupyter, log lines elsewhere.
    """

    _bar: Any = None
    _stands = ""  # how far it is, in words

    def __init__(self, title: str, mode: str | None = None) -> None:
        wish = config.progress()
        self._title = visible(title)
        self._mode = mode or (wish.value if wish else self._fitting())
        self._logged: float | None = None
        self._begin = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()

    @staticmethod
    def _fitting() -> str:
        in_jupyter = "ipykernel" in sys.modules
        return "bar" if in_jupyter or sys.stderr.isatty() else "log"

    def _log(self, words: str) -> None:
        """A line, if the last one is old enough."""
        with self._lock:
            now = time.monotonic()
            if self._logged is None or now - self._logged >= _LOG_EVERY_S:
                self._logged = now
                print(f"{self._title}: {words}", file=sys.stderr, flush=True)

    def _pulse(self) -> None:
        while not self._ended.wait(_LOG_EVERY_S):
            self._log(f"{self._stands}at work for {time.monotonic() - self._begin:.0f} s")

    def __enter__(self) -> Self:
        if self._mode == "log":
            threading.Thread(target=self._pulse, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._bar is not None:
            self._bar.close()


class Reporter(Working):
    """Shows a measurement's status; use as a context manager and pass it as ``progress``.

    ``shown``: a list to which the notes that were shown are added.
    """

    def __init__(self, title: str, mode: str | None = None, shown: list[str] | None = None) -> None:
        super().__init__(title, mode)
        self._shown = [] if shown is None else shown

    def __enter__(self) -> Self:
        if self._mode == "bar":
            from tqdm.auto import tqdm

            self._bar = tqdm(
                total=100, desc=self._title, bar_format="{l_bar}{bar}| {postfix}", leave=False
            )
        return super().__enter__()

    def __call__(self, status: Status) -> None:
        """Show where the measurement stands."""
        if status.note:
            self._say(visible(status.note))
        words = f"round {status.rounds + 1}{left(status.left_s)}{half_width(status)}"
        if self._bar is not None:
            share = status.elapsed_s / max(1e-9, status.elapsed_s + status.left_s)
            self._bar.n = max(self._bar.n, round(100 * share))
            self._bar.set_postfix_str(words)
        elif self._mode == "log":
            self._log(words)

    def _say(self, sentence: str) -> None:
        """A line above the bar, or in the log."""
        if self._bar is not None:
            self._bar.write(sentence, file=sys.stderr)
        elif self._mode == "log":
            print(f"{self._title}: {sentence}", file=sys.stderr, flush=True)
        if self._mode != "none":
            self._shown.append(sentence)


class Counter(Working):
    """Shows how many of a known number are done; use as a context manager and as ``progress``."""

    def __call__(self, done: int, of: int) -> None:
        """Show how far it is."""
        if self._mode == "bar":
            if self._bar is None:
                from tqdm.auto import tqdm

                self._bar = tqdm(total=of, desc=self._title, leave=False)
            self._bar.update(done - self._bar.n)
        elif self._mode == "log":
            self._log(f"{done} of {of}")
            self._stands = f"{done} of {of}, "
