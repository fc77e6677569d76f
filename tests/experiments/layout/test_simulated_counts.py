"""Simulated aliases and TLB misses by layout: exact for our own program, ranked by correlation."""

from __future__ import annotations

import math
import shutil
import subprocess
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.aliasing.environment.addresses import pairs_of, with_stack_lower
from perflib.experiments.aliasing.environment.starts import read_line
from perflib.experiments.layout import experiment
from perflib.experiments.layout import simulated as simulating
from perflib.experiments.layout.factors import conditions
from perflib.experiments.layout.programs import argv_of
from perflib.experiments.layout.table import LayoutTable
from perflib.model.errors import UserError
from tests.experiments.layout.simulated import FACTORS, trials

needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-x86_64") is None, reason="apt-get install qemu-user"
)
ALIASES = "4K aliases / 1000 instructions"
SMALL: dict[str, Any] = {"factors": ["environment"], "aslr": False, "iterations": 100_000,
                         "budget_s": 1.0}  # fmt: skip


def params(**given: Any) -> Any:
    return experiment.params({**SMALL, **given})


def aliasing_padding(base_bytes: int, iterations: int) -> int:
    """By how much the environment must be larger for the loop's variables to alias, natively.

    Its addresses are printed to a file whose name is as long as the run's own.
    """
    program, _, *arguments = argv_of(params(), "A")
    argv = [program, "64".zfill(len(str(iterations))), *arguments[:-1], "/dev/fd/1"]
    environment = conditions(params(), {}, base_bytes).process_environment()
    said = subprocess.run(
        ["setarch", "-R", *argv], env=environment, capture_output=True, text=True, check=True
    ).stdout
    reported = read_line(said, "the program")
    addresses = {name: int(reported[name]) for name in ("i", "j", "k", "inc", "g")}
    return next(more for more in range(16, 4096, 16) if pairs_of(with_stack_lower(addresses, more)))


@needs_qemu
@pytest.mark.skipif(shutil.which("setarch") is None, reason="apt-get install util-linux")
@pytest.mark.parametrize("iterations", [40_000, 100_000, 1_000_000, 20_000_000])
def test_aliases_are_simulated_in_the_layouts_that_have_them(iterations: int) -> None:
    """Whatever the length of the arguments, which lie on the stack, too."""
    base = int(experiment.plan(params())["environment_bytes"])
    padding = aliasing_padding(base, iterations)
    other = (padding + 1024) % 4096
    given = params(
        paddings=[other, padding], layouts=8, budget_s=4.0, simulated_s=60.0, iterations=iterations
    )
    run = experiment.measure(given)
    assert run.provenance["plan"]["environment_bytes"] == base
    table = experiment.derived(run)["simulated"]()
    found = dict(zip(table["environment"].tolist(), table["4K aliases"].tolist(), strict=True))
    assert found.keys() == {padding, other}
    assert found[padding] > 10
    assert found[other] < 2
    ranked = experiment.derived(run)["counters"]()
    assert ALIASES in set(ranked.loc[ranked["source"] == "simulated", "counter"])


@needs_qemu
def test_what_has_random_addresses_only_is_not_simulated() -> None:
    run = experiment.measure(params(aslr=True, simulated_s=20.0))
    assert "simulated" not in run.provenance
    assert any("every start had random addresses" in one for one in run.provenance["problems"])


def test_without_an_emulator_the_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "qemu_counts", Mock(side_effect=UserError("no qemu")))
    run = experiment.measure(params(simulated_s=20.0))
    assert "nothing is simulated: no qemu" in run.provenance["problems"]
    assert experiment.derived(run)["simulated"]().empty


def test_time_for_it_is_a_fifth_of_the_budget_or_what_is_given() -> None:
    assert params(budget_s=45.0).simulating_s == 9.0
    assert params(budget_s=5.0).simulating_s == 0
    assert params(simulated_s=3.0).simulating_s == 3.0
    assert params(simulated_s=0, budget_s=100.0).simulating_s == 0


def rows_of(aliases: dict[int, float]) -> list[dict[str, Any]]:
    return [
        {"build": "A", "environment": padding, "instructions": 1e6, "4K aliases": count,
         "iTLB misses": 0.1}
        for padding, count in aliases.items()
    ]  # fmt: skip


def ranked(samples: pd.DataFrame, aliases: dict[int, float]) -> dict[str, Any]:
    table = LayoutTable(samples, "cpu", rows_of(aliases)).counters()
    assert set(table["source"]) == {"simulated"}
    by_name = {str(row["counter"]): row for row in table.to_dict("records")}
    assert math.isnan(by_name["iTLB misses / 1000 instructions"]["correlation"])
    return {str(name): value for name, value in by_name[ALIASES].items()}


def test_a_null_is_hardly_ever_taken_for_a_cause() -> None:
    generator = np.random.default_rng(3)
    small = 0
    for seed in range(40):
        aliases = {padding: float(generator.gamma(1.0)) for padding in FACTORS["environment"]}
        small += ranked(trials(seed, rounds=16), aliases)["p"] < 0.05
    assert small <= 6


def test_only_layouts_without_aslr_have_counts() -> None:
    samples = trials(2, rounds=8)
    table = LayoutTable(samples, "cpu", rows_of(dict.fromkeys([0, 1040, 2080, 3120], 1.0)))
    counts = table._simulated_of_starts()
    assert set(table.rows.loc[counts.index, "aslr"]) == {"off"}
    assert len(counts) == (table.rows["aslr"] == "off").sum()
    some = LayoutTable(samples, "cpu", rows_of({1040: 1.0}))._simulated_of_starts()
    assert set(table.rows.loc[some.index, "padding_bytes"]) == {1040}
    assert LayoutTable(samples).simulated.empty
