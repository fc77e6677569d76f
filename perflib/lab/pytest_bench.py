"""The benchmarks of one session of pytest: rounds across tests, baselines, results.

A baseline is of one machine, Python and project. Sessions cannot be interleaved, so each function
is timed in turns with a fixed reference piece, and what is compared between sessions is the ratio
to that. How far sessions scatter is known from three of them: with fewer nothing is decided.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from _pytest.runner import runtestprotocol
from scipy import special

from perflib.experiments.bracketed import experiment
from perflib.experiments.bracketed.analyse import findings
from perflib.experiments.bracketed.claims import SLOWER
from perflib.experiments.bracketed.table import BracketedTable
from perflib.lab.bench import Piece, Taken, calibrate, without_collector
from perflib.machine.describe import describe
from perflib.measure.schedule import frame_of
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.model.sentences import plain, reason
from perflib.stats.decide import Reason
from perflib.stats.discoveries import Centre, difference
from perflib.stats.interval import NO_INTERVAL, Interval, columns, percent
from perflib.store import paths
from perflib.store.files import replacing

_REFERENCE = "perflib's reference"
_PASS_S = 0.05  # of samples in each pass of a benchmark
_MIN_SESSIONS = 3
_USUAL_PERCENT = 1.0


def _reference() -> int:
    """A piece of Python that no change of the project's changes."""
    total = 0
    for i in range(2000):
        total += i & 7
    return total


class Benchmarks:
    """All benchmarks of a session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._items: dict[str, pytest.Item] = {}
        self._against: dict[str, str] = {}  # by name
        self._known: dict[str, int] = {}  # calls in a sample of each piece
        self._taken = Taken()
        self._samples: list[dict[str, Any]] = []
        self._order = random.Random(1)
        self._measuring = False
        self.results: list[dict[str, Any]] = []
        self.lines: list[str] = []

    def of(self, item: pytest.Item) -> Callable[..., Any]:
        """What the fixture gives to a test."""
        count = iter(range(sys.maxsize))

        def bench(
            f: Callable[..., Any],
            /,
            *args: Any,
            against: Callable[..., Any] | None = None,
            **kwargs: Any,
        ) -> Any:
            number = next(count)
            name = item.nodeid + (f" #{number + 1}" if number else "")
            calls: list[Callable[[], Any]] = [
                functools.partial(one, *args, **kwargs) for one in (f, against) if one
            ]
            if self._measuring:
                other = self._against[name]
                named = zip((name, other), (*calls, _reference), strict=False)
                pieces = [Piece(*one, self._known.get(one[0], 1)) for one in named]
                if name not in self._known:
                    calibrate(pieces)
                    self._known |= {one.name: one.calls for one in pieces}
                self._taken.turns(pieces, self._order, _PASS_S)
            else:
                self._items[item.nodeid] = item
                self._against[name] = f"{name} (against)" if against else _REFERENCE
                for call in calls[1:]:
                    call()
            return calls[0]()

        return bench

    # --- the rounds -------------------------------------------------------------------------------

    def measure(self) -> None:
        """Run the tests again in rounds, until the budget ends; a test that fails then is left.

        Where a busy machine gave no sample until then, it is tried for longer.
        """
        budget_s = self._config.getoption("--perflib-budget") * len(self._items)
        end = time.monotonic() + budget_s
        self._measuring = True
        with without_collector():
            while self._items and time.monotonic() < end + (not self._samples) * 9 * budget_s:
                items = self._order.sample([*self._items.values()], len(self._items))
                for place, item in enumerate(items):
                    # What a wider scope has set up stays until the last pass.
                    last = time.monotonic() >= end and place == len(items) - 1
                    following: Any = None if last else items[(place + 1) % len(items)]
                    if following is item:  # a test alone: its own fixtures are torn down, too
                        following = item.parent
                    reports = runtestprotocol(item, log=False, nextitem=following)
                    if failed := [report for report in reports if report.failed]:
                        del self._items[item.nodeid]
                        why = failed[0].longreprtext.strip().rpartition("\n")[2]
                        self.lines.append(f"{item.nodeid} fails when it runs again: {why}")
                if len(self._taken):
                    self._samples.append(
                        {"round": 0, "position": 0, "columns": self._taken.columns()}
                    )

    # --- the results ------------------------------------------------------------------------------

    def finish(self) -> bool:
        """Work out the results, keep and write what is wanted; whether a benchmark fails."""
        limit = self._config.getoption("--perflib-fail-above")
        samples = frame_of(self._samples)
        if samples.empty:
            self.lines.append("nothing was measured: the budget was 0, or no test passed")
            return False
        baseline = self._baseline()
        failed = False
        for name, other in self._against.items():
            mine = samples[samples["name"].isin([name, other])]
            if not (mine["name"] == name).any():
                continue
            finding, result = self._result(name, mine, baseline, limit or _USUAL_PERCENT)
            self.results.append(result)
            self.lines += [result["sentence"], *(f"  {why}" for why in [reason(finding)] if why)]
            failed |= limit is not None and finding.verdict == "supported"
        self._keep(baseline)
        return failed

    def _result(
        self, name: str, mine: pd.DataFrame, baseline: dict[str, Any], limit: float
    ) -> tuple[Finding, dict[str, Any]]:
        other = self._against[name]
        given = {"job": "here", "against": other, "threshold_percent": limit}
        params = experiment.params(given).model_dump(mode="json")
        run = experiment.current(Run("pytest", experiment.name, params, mine, {}))
        table = BracketedTable(run.samples, other)
        ratio = table.slower(name).slowdown
        finding = next(one for one in findings(run) if one.of is SLOWER)
        if other == _REFERENCE:
            finding = _compared(name, ratio, baseline.get(name, []), limit)
        alone = table.alone[(table.rows["name"] == name).to_numpy()]
        return finding, {
            "name": name,
            "against": finding.about["against"],
            "samples": len(alone),
            "alone_percent": 100 * float(alone.mean()) if table.classified else None,
            **columns("time_ns", table.time_ns(name)),
            **columns("over_reference_percent" if other == _REFERENCE else "longer_percent", ratio),
            "verdict": finding.verdict,
            "sentence": plain(finding),
        }

    # --- baselines --------------------------------------------------------------------------------

    @functools.cached_property
    def _file(self) -> Path:
        version = sys.version.split()[0]
        key = f"{describe()['fingerprint']} {version} {self._config.rootpath.resolve()}"
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        return paths.data_dir() / "pytest" / f"{name}.json"

    def _baseline(self) -> dict[str, Any]:
        """Of each benchmark the ratios of earlier sessions."""
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _keep(self, baseline: dict[str, Any]) -> None:
        start = datetime.now(UTC).isoformat(timespec="seconds")
        if self._config.getoption("--perflib-save"):
            for one in self.results:
                ends = [one.get(f"over_reference_percent{end}") for end in ("", "_low", "_high")]
                if all(end is not None and math.isfinite(end) for end in ends):
                    session = {"start": start, "percent": ends}
                    baseline.setdefault(one["name"], []).append(session)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._file) as path:
                path.write_text(json.dumps(baseline), encoding="utf-8")
            self.lines.append(f"added to the baseline of this machine: {self._file}")
        if target := self._config.getoption("--perflib-json"):
            record = {
                "machine": describe()["fingerprint"],
                "python": sys.version.split()[0],
                "start": start,
                "benchmarks": self.results,
            }
            try:
                Path(target).write_text(json.dumps(record, indent=1), encoding="utf-8")
            except OSError as error:
                self.lines.append(f"the results were not written to {target}: {error.strerror}")


def _compared(name: str, now: Interval, sessions: list[dict[str, Any]], limit: float) -> Finding:
    """A session compared with those of the baseline, by how far they scatter."""
    about = {"name": name, "against": "the baseline"}
    count = len(sessions)
    if count < _MIN_SESSIONS or not math.isfinite(now.half_width):
        few = Reason("few_sessions", {"count": count, "least": _MIN_SESSIONS})
        return SLOWER.decided(NO_INTERVAL, limit, about=about, prevented=few)
    logs = np.log1p(np.array([one["percent"] for one in sessions]) / 100)
    own = np.log1p(np.array(now) / 100)
    within = float(own[2] - own[1]) / 2 / float(special.ndtri(0.975))
    scatter, freedom = float(logs[:, 0].std(ddof=1)), float(count - 1)
    found = difference(
        Centre(float(own[0]), max(scatter, within), freedom),
        Centre(float(logs[:, 0].mean()), scatter / math.sqrt(count), freedom),
    )
    half = float(special.stdtrit(freedom, 0.975)) * found.error
    slower = percent(Interval(found.value, found.value - half, found.value + half))
    how = "less time than" if slower.high < -limit else "no longer than"
    return SLOWER.decided(slower, limit, about=about, facts={"how": how})
