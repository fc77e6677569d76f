"""What samples of a sweep over the size of the code say, before anything is claimed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perflib.experiments.code_size.table import CodeTable
from perflib.model.errors import UserError
from perflib.stats.intervals import t_interval
from tests.experiments.code_size.code_samples import samples

SIZES = (8, 32, 512, 1024, 3072)


# --- what is not used ----------------------------------------------------------------------------


def test_sizes_that_do_not_grow_are_a_sentence() -> None:
    with pytest.raises(UserError, match="code_bytes must grow with n"):
        CodeTable(samples(rounds=2).assign(code_bytes=4096))


# --- pages, cores --------------------------------------------------------------------------------


def test_the_page_ratio_is_free_of_drift_and_missing_samples() -> None:
    made = samples(drift=2.0, rounds=40, sizes_kib=SIZES, walk_ns=1.0)
    gone = (made["round"] % 3 == 0) & made["cpu"].eq(1) & made["backing"].eq("thp")
    table = CodeTable(made[~gone])
    exact = samples(sizes_kib=SIZES, rounds=10, noise=0.0, tails=0.0, drift=0.0)
    exact["time_ns"] -= 5000.0 * exact["softirqs"]
    huge = CodeTable(exact).curve("random", "thp")["step_ns"].iloc[-1]
    last = t_interval(table.page_ratio("random", "thp")[:, -1])
    assert last.effect == pytest.approx(math.log1p((1 - 512 / 3072) / huge), abs=0.01)
    of_one = t_interval(table.page_ratio("random", "thp", 1)[:, -1])
    assert of_one.effect == pytest.approx(last.effect, abs=0.02)
    assert t_interval(table.page_ratio("random", "thp")[:, 0]).effect == pytest.approx(0, abs=0.01)


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
