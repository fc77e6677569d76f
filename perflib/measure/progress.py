"""Progress where it can be seen: a bar in a terminal, a widget in Jupyter, log lines in batch."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any, Self

from perflib.measure.schedule import Status

__all__ = ["Reporter"]

_LOG_EVERY_S = 10.0


class Reporter:
    """Shows a measurement's status; use as a context manager and pass it as ``progress``.

    ``PERFLIB_PROGRESS`` = ``log`` or ``none`` overrides what is chosen by itself.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None
        self._logged = -_LOG_EVERY_S
        self._mode = os.environ.get("PERFLIB_PROGRESS") or self._fitting()

    @staticmethod
    def _fitting() -> str:
        in_jupyter = "ipykernel" in sys.modules
        return "bar" if in_jupyter or sys.stderr.isatty() else "log"

    def __enter__(self) -> Self:
        if self._mode == "bar":
            from tqdm.auto import tqdm

            self._bar = tqdm(
                total=100, desc=self._title, bar_format="{l_bar}{bar}| {postfix}", leave=False
            )
        return self

    def __call__(self, status: Status) -> None:
        """Show where the measurement stands."""
        words = f"round {status.rounds + 1}, {status.left_s:.0f} s left at most"
        if status.half_width is not None:
            words += f", ±{status.half_width:.2f}"
        if self._bar is not None:
            share = status.elapsed_s / max(1e-9, status.elapsed_s + status.left_s)
            self._bar.n = max(self._bar.n, round(100 * share))
            self._bar.set_postfix_str(words)
        elif self._mode == "log" and time.monotonic() - self._logged >= _LOG_EVERY_S:
            self._logged = time.monotonic()
            print(f"{self._title}: {words}", file=sys.stderr, flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
