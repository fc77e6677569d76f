"""The best offset for a function, and that there is none."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.aliasing.offsets.sweep import OffsetSweep
from perflib.model.errors import MeasurementError, UserError
from perflib.remedies import BestOffset, best_offset, tuner
from tests.remedies.places import PAGE, place

A, OUT = np.arange(64.0), np.zeros(64)


class Sweeps:
    """Sweeps of a machine that drifts, with interference; offsets cost what is given."""

    def __init__(self, cost: dict[int, float], seed: int = 1) -> None:
        self._cost = cost
        self._generator = np.random.default_rng(seed)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, function: Any, *_: Any, offsets: list[int], **asked: Any) -> OffsetSweep:
        self.asked.append({"offsets": offsets, **asked})
        generator, shape = self._generator, (24, 5, len(offsets))  # round, visit, offset
        logs = generator.normal(0, 0.01, shape)
        logs += (generator.random(shape) < 0.05) * generator.exponential(0.3, shape)
        logs += np.cumsum(generator.normal(0, 0.02, shape[0]))[:, None, None]
        logs += [math.log1p(self._cost.get(offset, 0)) for offset in offsets]
        number = np.indices(shape)[0].ravel()
        samples = pd.DataFrame(
            {
                "round": number,
                "offset_bytes": np.broadcast_to(offsets, shape).ravel(),
                "time_ns": 1e5 * np.exp(logs.ravel()),
                "calls": 10,
                "start_ns": number * 2_000_000_000,
                "ok": True,
            }
        )
        return OffsetSweep(function.__name__, samples, asked["threshold_percent"], "budget spent")


def tuned(
    monkeypatch: pytest.MonkeyPatch, cost: dict[int, float], seed: int = 1, **given: Any
) -> tuple[BestOffset, Sweeps]:
    sweeps = Sweeps(cost, seed)
    monkeypatch.setattr(tuner, "sweep_offsets", sweeps)
    return best_offset(np.copyto, OUT, A, move=0, **given), sweeps


def test_the_best_offset_is_found_and_measured_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    found, sweeps = tuned(monkeypatch, {2048: -0.2, 1024: -0.1}, budget_s=6, sample_ms=0.5)
    assert (found.verdict, found.offset_bytes) == ("supported", 2048)
    assert found.gain.low < 20 < found.gain.high
    assert found.gain.half_width < 3
    number = r"\d\d\.\d"
    assert re.fullmatch(
        rf"copyto: an offset of 2048 bytes is better: it saves {number} % "
        rf"\[{number}, {number}\] of a call's time at offset 0\.",
        str(found),
    )
    assert repr(found) == str(found)
    search, check = (one["offsets"] for one in sweeps.asked)
    assert (min(search), check) == (0, [0, 2048])
    assert max(search) < PAGE
    assert all(
        (one["move"], one["budget_s"], one["sample_ms"], one["threshold_percent"]) == (0, 3, 0.5, 1)
        for one in sweeps.asked
    )


def test_null_a_function_that_does_not_depend_on_the_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, claims, misses = 40, 0, 0
    for seed in range(runs):
        found, _ = tuned(monkeypatch, {}, seed, threshold_percent=0.01)
        claims += found.verdict == "supported"
        misses += not found.gain.low <= 0 <= found.gain.high
        assert found.offset_bytes == 0 or found.verdict == "supported"
    assert claims <= 3  # one in forty by chance
    assert misses <= 5  # two


def test_arrays_are_placed_at_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = tuned(monkeypatch, {1024: -0.2})
    grid = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    out, given_grid, number, row = found.arrays(OUT + 5, grid, 7, np.arange(3))
    assert [place(out), place(given_grid), number, place(row)] == [1024, 0, 7, 0]
    assert (out == 5).all()
    assert np.array_equal(given_grid, grid)
    assert given_grid.flags.f_contiguous
    assert row.tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="is empty"):
        found.arrays(OUT, np.zeros(0))
    none, _ = tuned(monkeypatch, {})
    assert [place(one) for one in none.arrays(OUT, A)] == [0, 0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"offsets": [64, 4096]}, "from 0 to 4095 bytes, not by 4096"),
        ({"offsets": []}, "two offsets or more"),
        ({"offsets": [0]}, "two offsets or more"),
        ({"move": 5}, "move=5 is no array"),
        ({"budget_s": 0}, "budget_s must be more than 0"),
        ({"threshold_percent": -1}, "threshold_percent must be more than 0"),
    ],
)
def test_what_cannot_be_tuned(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        best_offset(np.copyto, OUT, A, **{"move": 0, **settings})


def test_only_offset_0_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = Sweeps({})

    def only_0(*arguments: Any, **asked: Any) -> OffsetSweep:
        swept = sweeps(*arguments, **asked)
        swept.samples["ok"] = swept.samples["offset_bytes"] == 0
        return swept

    monkeypatch.setattr(tuner, "sweep_offsets", only_0)
    with pytest.raises(MeasurementError, match="nothing to choose from"):
        best_offset(np.copyto, OUT, A, move=0)


def test_a_real_function_is_tuned() -> None:
    found = best_offset(np.copyto, OUT, A, move=0, offsets=[64, 2048], budget_s=1, sample_ms=0.05)
    assert found.offset_bytes in {0, found.candidate_bytes}
    assert found.candidate_bytes in {64, 2048}
    assert set(found.check.samples["offset_bytes"]) == {0, found.candidate_bytes}
    assert found.gain.low <= found.gain.effect <= found.gain.high
    assert not OUT.any()
    assert str(found).startswith("copyto: ")
