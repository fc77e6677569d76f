"""Classes of use: of numbers of threads, of time, over time and by function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perflib.instruments.threads.formats import Selection, State
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.use import (
    CLASSES,
    active,
    use_by_function,
    use_of_time,
    use_over_time,
)
from perflib.model.errors import UserError
from tests.instruments.threads.made import recording_of

RUNNING, READY, WAITING, SLEEPING, SPINNING, UNKNOWN = State


@pytest.fixture
def four(tmp_path: Path) -> Recording:
    """Of four CPUs: nobody [0, 2), one [2, 4), three [4, 6), four [6, 8), five [8, 10)."""
    return recording_of(
        tmp_path,
        [
            [(0, 2, SLEEPING), (2, 10, RUNNING)],
            [(0, 4, SLEEPING), (4, 10, RUNNING)],
            [(0, 4, WAITING, 0, -1, 0), (4, 10, SPINNING)],
            [(0, 6, SLEEPING), (6, 10, READY)],
            [(0, 8, UNKNOWN), (8, 10, READY)],
        ],
        samples=[(4, 0, 4, 2), (6, 0, 4, 2), (6, 1, 5, 2), (9, 0, 4, 4)],
        meta={"cpus": 4},
    )


def test_time_by_class(four: Recording) -> None:
    table = use_of_time(four)
    assert table["use"].tolist() == list(CLASSES)
    assert table["share_percent"].tolist() == pytest.approx([20] * 5)
    assert active(four).tolist() == [2, 2, 0, 2, 2, 2]
    one_cpu = replace(four, meta={**four.meta, "cpus": 1})
    assert use_of_time(one_cpu)["share_percent"].tolist() == pytest.approx([20, 0, 0, 20, 60])
    assert use_of_time(four, Selection(5, 5))["seconds"].sum() == 0


def test_classes_over_time(four: Recording) -> None:
    table = use_over_time(four, 5)
    assert table[list(CLASSES)].to_numpy().tolist() == np.eye(5).tolist()
    halves = use_over_time(four, 2)[list(CLASSES)].to_numpy()
    assert halves.tolist() == pytest.approx(
        np.array([[0.4, 0.4, 0.2, 0, 0], [0, 0, 0.2, 0.4, 0.4]])
    )
    part = use_over_time(four, 1, Selection(7, 9))
    assert part[list(CLASSES)].to_numpy().ravel().tolist() == [0, 0, 0, 0.5, 0.5]


def test_functions_by_class(four: Recording) -> None:
    table = use_by_function(four).set_index("function")
    assert list(table.index) == ["physics", "scatter"]
    assert (1e9 * table.loc["physics"]).to_dict() == pytest.approx(
        {"cpu_s": 8, "idle": 0, "poor": 2, "ok": 2, "ideal": 0, "over": 4}
    )
    assert table["ok"].to_dict() == pytest.approx({"physics": 2e-9, "scatter": 2e-9})
    assert use_by_function(four, Selection(0, 1)).empty


def test_what_cannot_be_is_refused(four: Recording) -> None:
    with pytest.raises(UserError, match="bins=0"):
        use_over_time(four, 0)
