"""What samples of a sweep over the size of the code say, before anything is claimed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.code_size.table import CodeTable
from perflib.model.errors import UserError
from perflib.stats.intervals import t_interval
from tests.experiments.code_size.code_samples import KIB, SIZES_KIB, samples

SIZES = (8, 32, 512, 1024, 3072)


def exact(**changed: object) -> pd.DataFrame:
    """Samples without any noise."""
    nothing = {"noise": 0.0, "tails": 0.0, "drift": 0.0}
    made = samples(**{"sizes_kib": SIZES, "rounds": 10, **nothing, **changed})  # type: ignore[arg-type]
    return made.assign(time_ns=made["time_ns"] - 5000.0 * made["softirqs"])


# --- its shape -----------------------------------------------------------------------------------


def test_patterns_backings_and_sizes_are_in_order() -> None:
    table = CodeTable(
        samples(rounds=2, patterns=("chase", "random"), backings=("hugetlb", "thp", "4k", "loaded"))
    )
    assert table.patterns == ["random", "chase"]
    assert table.backings == ["loaded", "4k", "thp", "hugetlb"]
    assert table.huge == ["thp", "hugetlb"]
    assert table.cores == [0, 1, 2, 3]
    assert table.sizes("random") == [size * KIB // 128 for size in SIZES_KIB]
    assert table.sizes("chase") == [size // 4 for size in SIZES_KIB]
    assert table.code_bytes("chase").tolist() == [size * KIB for size in SIZES_KIB]
    assert table.values("random", "4k").shape == (2, 4, len(SIZES_KIB))


def test_unknown_names_come_after_the_known_ones() -> None:
    made = samples(rounds=2, patterns=("chase",))
    own = made.assign(pattern="loop", backing=made["backing"].replace("thp", "1g"))
    table = CodeTable(pd.concat([own, made]))
    assert table.patterns == ["chase", "loop"]
    assert table.backings == ["4k", "thp", "1g"]
    assert table.huge == ["thp", "1g"]
    assert np.isfinite(table.values("loop", "1g")).all()
    assert np.isnan(table.values("loop", "thp")).all()


def test_names_may_be_numbers() -> None:
    made = samples(rounds=2).assign(pattern=7)
    table = CodeTable(made)
    assert table.patterns == ["7"]
    assert np.isfinite(table.values("7", "4k")).all()


# --- what is not used ----------------------------------------------------------------------------


def test_rows_that_are_not_ok_are_left_out_and_may_hold_anything() -> None:
    made = samples(rounds=4)
    wrong = made["round"].eq(2) & made["cpu"].eq(1)
    made.loc[wrong, ["time_ns", "steps", "code_bytes"]] = [math.nan, 0, 0]
    made["ok"] = ~wrong
    table = CodeTable(made)
    assert np.isnan(table.values("random", "4k")[2, 1]).all()
    assert np.isfinite(np.delete(table.values("random", "4k"), 2, axis=0)).all()
    assert table.code_bytes("random").min() == 8 * KIB


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.assign(ok=False), "no sample is usable"),
        (lambda t: t.assign(code_bytes=4096), "of pattern '.*' code_bytes must grow with n"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(
    change: Callable[[pd.DataFrame], pd.DataFrame], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        CodeTable(change(samples(rounds=2)))


# --- time against size ---------------------------------------------------------------------------


def test_a_curve_is_what_it_is_made_of() -> None:
    made = exact(slow={2: 0.1})
    table = CodeTable(made)
    for cpu in (0, 2):
        mine = made[(made["cpu"] == cpu) & (made["backing"] == "4k")]
        expected = mine.assign(step_ns=mine["time_ns"] / mine["steps"]).groupby("n")["step_ns"]
        curve = table.curve("random", "4k", cpu)
        assert curve["step_ns"].to_numpy() == pytest.approx(expected.mean().to_numpy(), rel=1e-4)
        assert curve["code_bytes"].tolist() == [size * KIB for size in SIZES]
    slower = table.curve("random", "4k", 2)["step_ns"] / table.curve("random", "4k", 0)["step_ns"]
    assert slower.to_numpy() == pytest.approx(1.1, rel=1e-3)
    all_cores = table.curve("random", "4k")["step_ns"] / table.curve("random", "4k", 0)["step_ns"]
    assert all_cores.to_numpy() == pytest.approx(1.1**0.25, rel=1e-3)


def test_a_curve_of_what_was_not_measured_is_nan() -> None:
    made = samples(rounds=4, patterns=("random", "chase"))
    table = CodeTable(made[~(made["pattern"].eq("chase") & made["backing"].eq("thp"))])
    assert table.curve("chase", "thp")["step_ns"].isna().all()
    assert table.curve("random", "thp")["step_ns"].notna().all()


def test_the_model_of_misses_finds_what_they_cost() -> None:
    """Code that misses as often as it must, at 1.0 and 2.5 ns; what else it costs is in all."""
    table = CodeTable(exact(sizes_kib=(1024, 2048, 3072, 4096, 64, 32, 128, 256), walk_ns=0.0))
    costs, model = table.miss_model("random", "thp", {"L1i": 32 * KIB, "L2": 256 * KIB})
    assert list(costs.index) == ["no miss", "L1i", "L2"]
    assert costs["L2"] == pytest.approx(2.5, abs=0.3)
    assert costs["L1i"] == pytest.approx(1.0 + 0.75, abs=0.5)  # branches have a part in it
    assert model == pytest.approx(table.curve("random", "thp")["step_ns"].to_numpy(), rel=0.05)
    assert (costs >= 0).all()


def test_the_model_of_misses_leaves_out_sizes_without_a_time() -> None:
    made = exact(sizes_kib=(1024, 2048, 3072, 4096, 64, 32, 128, 256), walk_ns=0.0)
    unknown = made["code_bytes"].eq(3072 * KIB) & made["backing"].eq("thp")
    levels = {"L1i": 32 * KIB, "L2": 256 * KIB}
    costs, model = CodeTable(made[~unknown]).miss_model("random", "thp", levels)
    assert costs["L2"] == pytest.approx(2.5, abs=0.3)
    assert len(model) == 8
    costs, model = CodeTable(made[~made["backing"].eq("thp")]).miss_model("random", "thp", levels)
    assert costs.isna().all()


# --- the ring and its control --------------------------------------------------------------------


def test_the_ring_on_few_pages_is_the_control_of_the_chase() -> None:
    table = CodeTable(exact(patterns=("chase", "line"), walk_ns=3.0, rounds=16))
    assert table.sweeps == ["chase"]
    assert table.has_ring_control
    extent, blocks = table.ring_ratio()
    assert extent.tolist() == [size * KIB for size in SIZES]
    ratio = np.exp([t_interval(column).effect for column in blocks.T])
    assert ratio[:3] == pytest.approx(1.0, abs=0.001)
    line = table.curve("line", "4k")["step_ns"].to_numpy()
    assert ratio[3:] == pytest.approx(1 + 3 / line[3:], abs=0.001)
    (knee,) = table.ring_knees().knees
    assert knee.size.low <= 512 * KIB <= knee.size.high


def test_rings_of_other_sizes_are_compared_where_both_were_measured() -> None:
    made = samples(patterns=("chase", "line"), rounds=16, sizes_kib=SIZES)
    gone = (made["pattern"].eq("line") & made["n"].eq(128)) | (
        made["pattern"].eq("chase") & made["n"].eq(2)
    )
    table = CodeTable(made[~gone])
    extent, blocks = table.ring_ratio()
    assert extent.tolist() == [size * KIB for size in (32, 1024, 3072)]
    assert np.isfinite(blocks).all()


@pytest.mark.parametrize(
    ("patterns", "backings", "sweeps"),
    [
        (("chase",), ("4k", "thp"), ["chase"]),
        (("line",), ("4k",), ["line"]),
        (("random", "line"), ("4k", "thp"), ["random"]),
    ],
)
def test_without_both_rings_there_is_no_control(
    patterns: tuple[str, ...], backings: tuple[str, ...], sweeps: list[str]
) -> None:
    table = CodeTable(samples(patterns=patterns, backings=backings, rounds=2))
    assert not table.has_ring_control
    assert table.sweeps == sweeps


# --- pages, cores --------------------------------------------------------------------------------


def test_the_page_ratio_is_free_of_drift_and_missing_samples() -> None:
    made = samples(drift=2.0, rounds=40, sizes_kib=SIZES, walk_ns=1.0)
    gone = (made["round"] % 3 == 0) & made["cpu"].eq(1) & made["backing"].eq("thp")
    table = CodeTable(made[~gone])
    huge = CodeTable(exact()).curve("random", "thp")["step_ns"].iloc[-1]
    last = t_interval(table.page_ratio("random", "thp")[:, -1])
    assert last.effect == pytest.approx(math.log1p((1 - 512 / 3072) / huge), abs=0.01)
    of_one = t_interval(table.page_ratio("random", "thp", 1)[:, -1])
    assert of_one.effect == pytest.approx(last.effect, abs=0.02)
    assert t_interval(table.page_ratio("random", "thp")[:, 0]).effect == pytest.approx(0, abs=0.01)


def test_cores_are_compared_at_each_size() -> None:
    table = CodeTable(samples(lags={2: 0.094}, rounds=40, sizes_kib=SIZES))
    at_each = table.difference_by_size("random", "4k")
    of_two = [compared.effects[2].slowdown.effect for compared in at_each]
    assert of_two == pytest.approx([0, 0, 0, 6, 9.4], abs=1.0)
    assert [compared.effects[0].slowdown.effect for compared in at_each] == pytest.approx(
        [0] * 5, abs=1.0
    )
    both = table.core_difference("random", "4k", [3, 4])
    assert both.effects[2].slowdown.effect == pytest.approx((of_two[3] + of_two[4]) / 2, abs=0.5)


def test_a_core_that_lacks_a_size_in_a_round_is_left_out_of_that_round() -> None:
    made = samples(rounds=40, sizes_kib=SIZES)
    largest = made["n"] == made["n"].max()
    gone = largest & made["cpu"].eq(1) & (made["round"] % 2 == 0)
    compared = CodeTable(made[~gone]).core_difference("random", "4k", [3, 4])
    assert abs(compared.effects[1].slowdown.effect) < 1
    assert np.isfinite(compared.effects[1].slowdown.half_width)


# --- time ----------------------------------------------------------------------------------------


def test_rounds_begin_when_their_first_sample_does() -> None:
    made = samples(rounds=30)
    starts = CodeTable(made).start_s
    assert starts is not None
    assert starts[0] == 0
    firsts = made.groupby("round")["start_ns"].min()
    assert starts[5] == pytest.approx((firsts[5] - firsts[0]) / 1e9)
    assert CodeTable(made.drop(columns="start_ns")).start_s is None
    late = made.assign(start_ns=made["start_ns"].where(made["round"] != 3))
    assert CodeTable(late).start_s is None
    assert (
        CodeTable(made.assign(start_ns=made["start_ns"].max() - made["start_ns"])).start_s is None
    )
    some = made.assign(start_ns=made["start_ns"].where(made["backing"] == "4k"))
    assert CodeTable(some).start_s is not None


# --- how precise ---------------------------------------------------------------------------------


def test_the_half_width_is_the_widest_at_the_largest_size() -> None:
    made = samples(rounds=40, sizes_kib=SIZES)
    quiet = CodeTable(made)
    assert 0 < quiet.half_width < 2
    noise = np.exp(np.random.default_rng(1).normal(0, 0.2, len(made)))
    small = made["n"] < made["n"].max()
    noisy_small = made.assign(time_ns=made["time_ns"] * np.where(small, noise, 1.0))
    assert CodeTable(noisy_small).half_width == pytest.approx(quiet.half_width, rel=0.01)
    large = made["n"].eq(made["n"].max()) & made["backing"].eq("thp")
    noisy_large = made.assign(time_ns=made["time_ns"] * np.where(large, noise, 1.0))
    assert CodeTable(noisy_large).half_width > 3 * quiet.half_width


@pytest.mark.parametrize(
    ("cores", "backings"), [((0,), ("4k",)), ((0,), ("4k", "thp")), ((0, 1), ("thp",))]
)
def test_the_half_width_of_few_configurations(
    cores: tuple[int, ...], backings: tuple[str, ...]
) -> None:
    found = CodeTable(samples(cores=cores, backings=backings, rounds=40, drift=0.0)).half_width
    assert 0 < found < 2


def test_one_round_is_never_precise() -> None:
    for cores in ((0,), (0, 1)):
        assert CodeTable(samples(cores=cores, rounds=1)).half_width == math.inf


def test_what_is_measured_with_some_patterns_only_does_not_keep_a_run_from_ending() -> None:
    made = samples(rounds=20, patterns=("random", "chase"), backings=("4k", "hugectl"))
    some = made[~(made["pattern"].eq("chase") & made["backing"].eq("hugectl"))]
    assert CodeTable(some).half_width < 2
