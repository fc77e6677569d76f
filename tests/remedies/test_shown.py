"""What the remedies do to a function: aliases that the emulator counts vanish, times follow."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from perflib.experiments.aliasing.addresses import aliasing
from perflib.kernels import build
from perflib.model.errors import UserError
from perflib.remedies import RemediesShown, alias_free, show_remedies, shown, tuner
from tests.remedies.test_tuner import Sweeps

needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-x86_64") is None, reason="apt-get install qemu-user"
)
N = 4096
REMEDIES = ["alias_free", "alias_free_allocator"]


def pair() -> tuple[Any, Any]:
    """Two arrays that begin at a page each, as two large allocations do."""
    made = [np.zeros(4 * N + 4096, np.uint8) for _ in range(2)]
    return tuple(one[-one.ctypes.data % 4096 :][: 4 * N].view(np.float32) for one in made)  # type: ignore[return-value]


def convolution() -> tuple[str, str, str]:
    """That of notebook 10."""
    declared = "void offsets_convolution(int n, const float *in, float *out)"
    return str(build("alias_offsets").library), "offsets_convolution", declared


def minds(offsets_cost: float) -> Sweeps:
    """A machine on which distances that are predicted to alias cost so much."""
    every = np.arange(4096)
    near, _ = aliasing(every)
    return Sweeps(dict.fromkeys(every[near].tolist(), offsets_cost))


def on(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch, function: Any, *arguments: Any, **given: Any
) -> RemediesShown:
    """Shown on such a machine; only the aliases are really simulated."""

    def sweep(_: Any, *arguments: Any, **asked: Any) -> Any:
        asked["offsets"] = sorted(asked["offsets"])
        return sweeps(np.copyto, *arguments, **asked)

    monkeypatch.setattr(shown, "sweep_offsets", sweep)
    monkeypatch.setattr(tuner, "sweep_offsets", sweep)
    return show_remedies(function, *arguments, **given)


@needs_qemu
def test_the_convolution_has_no_aliases_with_any_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    given, out = pair()
    found = on(minds(0.3), monkeypatch, convolution(), N, given, out)
    table = found.table().set_index("placed")
    aliases, cured = table["simulated_aliases"], table.loc[[*REMEDIES, "best_offset"]]
    assert aliases["as they are"] == aliases["both at a page"] > N / 2  # as two large allocations
    # Its five weights lie in a page, too: they meet the output as it passes by.
    assert (cured["simulated_aliases"] <= 5 * (4 * N // 4096) * 10).all()
    assert (cured["verdict"] == "supported").all()
    assert (cured["saves_percent_low"] > 10).all()
    assert not found.problems
    assert ": 4K aliases a call (simulated: store buffer of 42" in repr(found)
    assert not out.any()


@needs_qemu
def test_null_a_machine_that_does_not_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on(Sweeps({}), monkeypatch, convolution(), N, *pair())
    table = found.table().set_index("placed")
    aliases = table["simulated_aliases"]
    assert aliases[REMEDIES].max() < aliases["both at a page"] / 50
    assert not (table["verdict"] == "supported").any()


def test_without_qemu_times_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> Any:
        msg = "qemu-x86_64 is not on PATH"
        raise UserError(msg)

    monkeypatch.setattr(shown, "qemu_counts", absent)
    given, out = pair()
    found = on(minds(0.3), monkeypatch, np.copyto, out, given, move=0)
    assert found.problems == ["4K aliases are not simulated: qemu-x86_64 is not on PATH"]
    table = found.table()
    assert table["simulated_aliases"].isna().all()
    assert table["verdict"].tolist()[2:] == ["supported"] * 3
    assert found.problems[0] in repr(found)


def test_arrays_that_lie_as_the_remedy_places_them_gain_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shown, "_simulated", lambda *_: {})
    given, out = alias_free((N, "f4"), (N, "f4"))
    table = on(minds(0.3), monkeypatch, np.copyto, out, given, move=0).table()
    row = table.set_index("placed").loc["alias_free"]
    assert (row["saves_percent_low"], row["saves_percent"], row["saves_percent_high"]) == (0, 0, 0)
    assert row["verdict"] == "refuted"


@pytest.mark.parametrize(
    ("arguments", "given", "sentence"),
    [
        ((np.zeros(9), np.zeros(8), np.zeros(7)), {}, r"two arrays.*; there are 3\. best_offset"),
        ((np.zeros(9),), {}, "two numpy arrays or more"),
        ((np.zeros(9), np.zeros(8)), {"move": 4}, "move=4 is no array"),
        ((np.zeros(9), np.zeros(8)), {"budget_s": 0}, "budget_s must be more than 0"),
    ],
)
def test_what_cannot_be_shown(
    arguments: tuple[Any, ...], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        show_remedies(np.copyto, *arguments, **given)


@needs_qemu
def test_really_measured_and_simulated() -> None:
    given, out = pair()
    found = show_remedies(np.copyto, out, given, move=0, budget_s=1, sample_ms=0.05)
    table = found.table()
    assert table["distance_bytes"].tolist()[:4] == [0, 0, 2048, 2048]
    # On a busy machine some have no interval, or no estimate.
    assert not (table["saves_percent_low"] > table["saves_percent"]).any()
    assert (table["saves_percent"] <= table["saves_percent_high"]).all()
    assert table["simulated_aliases"].notna().all()
    assert not out.any()
