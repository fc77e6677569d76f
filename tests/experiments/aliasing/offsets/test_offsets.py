"""alias_offsets as its user meets it: what is planned, measured, claimed and refused."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.aliasing.addresses import aliasing
from perflib.experiments.aliasing.offsets import experiment, measure
from perflib.experiments.aliasing.offsets.claims import ALIASES, ALIASES_SHARED, SLOWEST
from perflib.experiments.aliasing.offsets.functions import Configuration, Swept
from perflib.experiments.aliasing.offsets.measure import half_width
from perflib.experiments.aliasing.offsets.simulated import simulated_aliases
from perflib.experiments.aliasing.offsets.table import functions_in
from perflib.experiments.aliasing.offsets.trials import OffsetTrials, with_calls
from perflib.lab.theme import png
from perflib.machine.libraries.blas import Blas
from perflib.measure.conditions import Conditions
from perflib.model.errors import MeasurementError, UserError
from perflib.model.run import Run
from tests.experiments.aliasing.offsets.test_sweep import OFFSETS, made
from tests.experiments.aliasing.siblings import with_sibling
from tests.experiments.judged import made_run

needs_this_processor = pytest.mark.skipif(
    bool(experiment.unavailable()), reason=experiment.unavailable()
)
C_SOURCE = Path(__file__).parents[3] / "kernels_c" / "threaded_blas.c"
SMALL: dict[str, Any] = {
    "budget_s": 0.2, "elements": [256], "sample_ms": 0.05, "simulated_offsets": [],
    "cores": [min(os.sched_getaffinity(0))],
}  # fmt: skip


def swept(routine: str, n: int, build: str, order: str = "") -> Swept:
    return Configuration(0, routine, build, n, order).swept


def run_of(parts: dict[Swept, pd.DataFrame], **params: Any) -> Run:
    table = pd.concat([part.assign(**function.columns) for function, part in parts.items()])
    return made_run(experiment, table.reset_index(drop=True), **params)


COPY = swept("copy", 2048, "O2")
MINE = Swept("mine")


# --- where aliasing is predicted -----------------------------------------------------------------


def test_periods() -> None:
    assert swept("convolution", 100, "O2").period == 4096
    assert MINE.period == 4096
    dgemv = {n: swept("dgemv", n, "blis", "column").period for n in (512, 256, 128, 100)}
    assert dgemv == {512: 4096, 256: 2048, 128: None, 100: None}
    assert swept("dgemv", 512, "blis", "row").period is None


def test_what_ran_is_known_from_columns_from_an_earlier_plan_or_not_at_all() -> None:
    samples = made(1, rounds=4).assign(function="dgemv-blis-column-512")
    known = swept("dgemv", 512, "blis", "column")
    plan = {"arms": [[0, "dgemv", "blis", 512, "column", 7, 1, 5]]}
    assert functions_in(samples, plan)[0][0] == known
    assert functions_in(samples.assign(**known.columns))[0][0] == known
    assert functions_in(samples)[0][0] == Swept("dgemv-blis-column-512")
    empty = samples.assign(routine=None, build=math.nan, n=math.nan)
    assert functions_in(empty)[0][0] == Swept("dgemv-blis-column-512")


# --- analysis ------------------------------------------------------------------------------------


def test_each_function_has_its_verdicts() -> None:
    near = np.array(OFFSETS)[aliasing(OFFSETS)[0]].tolist()
    run = run_of(
        {
            swept("convolution", 2048, "O3"): made(1, slow=dict.fromkeys(near, 0.15)),
            COPY: made(2),
            swept("dgemv", 128, "blis", "column"): made(3),
            swept("dgemv", 512, "openblas-numpy", "column"): made(4),
            MINE: made(5),
        }
    )
    found = experiment.analyse(run)
    assert {finding.subject: finding.verdict for finding in found} == {
        "convolution-O3-2048 predicted": "supported",
        "convolution-O3-2048": "supported",
        "copy-O2-2048 predicted": "refuted",
        "copy-O2-2048": "refuted",
        "dgemv-blis-column-128": "refuted",
        "dgemv-openblas-numpy-column-512 predicted": "refuted",
        "dgemv-openblas-numpy-column-512": "refuted",
        "mine predicted": "refuted",
        "mine": "refuted",
    }
    assert {finding.of for finding in found} == {ALIASES, SLOWEST}
    assert {*experiment.claims} == {ALIASES, ALIASES_SHARED, SLOWEST}
    assert found[0].about == swept("convolution", 2048, "O3").columns
    assert found[1].reasons[0].code == "offset"
    for finding in found:
        assert "{" not in finding.plain + finding.claim + finding.reason


# --- the sibling ---------------------------------------------------------------------------------


def beside(seed: int, share: float, cost: float = 0.0, **slow: Any) -> pd.DataFrame:
    """A sibling that works for a share of the time; then predicted offsets cost so much more."""
    table = pd.concat([made(seed, hit=0.0, rounds=24, **slow)] * 3, ignore_index=True)
    table = table.sort_values("round", kind="stable", ignore_index=True)
    near = aliasing(table["offset_bytes"].to_numpy())[0]
    return with_sibling(table, share, seed=seed, extra=1 + cost * near)


def test_a_cost_is_reported_alone_and_beside_a_sibling() -> None:
    near = np.array(OFFSETS)[aliasing(OFFSETS)[0]].tolist()
    slow = dict.fromkeys(near, 0.15)
    found = experiment.analyse(run_of({COPY: beside(2, 0.5, cost=0.3, slow=slow)}))
    predicted, slowest, shared = found
    assert [one.subject for one in found] == [
        "copy-O2-2048 predicted", "copy-O2-2048", "copy-O2-2048 predicted shared",
    ]  # fmt: skip
    assert predicted.low < 15 < predicted.high
    assert predicted.high - predicted.low < 2
    assert slowest.verdict == "supported"
    assert shared.low < 100 * (1.15 * 1.3 - 1) < shared.high
    assert (shared.of, shared.of.kind) == (ALIASES_SHARED, "description")
    for finding in found:
        assert "{" not in finding.plain + finding.claim + finding.reason


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_null_beside_a_sibling(share: float) -> None:
    claims = misses = 0
    runs = 10
    for seed in range(runs):
        found = experiment.analyse(run_of({COPY: beside(seed, share)}, threshold_percent=1.0))
        claims += sum(one.verdict == "supported" for one in found)
        misses += not found[0].low <= 0 <= found[0].high
        assert len(found) == 2 if share == 1 else 3
    assert claims <= 1
    assert misses <= 3


def test_what_differs_beside_a_sibling_only_is_not_the_functions() -> None:
    found = experiment.analyse(run_of({COPY: beside(3, 0.6, cost=0.4)}))
    assert [one.verdict for one in found[::2]] == ["refuted", "supported"]
    assert found[1].verdict != "supported"


def test_a_function_that_was_never_alone_keeps_its_place_and_stays_open() -> None:
    quiet, loud = with_sibling(made(1), 0.0), with_sibling(made(2), 1.0)
    found = experiment.analyse(run_of({COPY: quiet, MINE: loud}))
    assert [one.subject for one in found[:4]] == [
        "copy-O2-2048 predicted", "copy-O2-2048", "mine predicted", "mine",
    ]  # fmt: skip
    assert [one.verdict for one in found[::2][:2]] == ["refuted", "inconclusive"]
    assert found[3].verdict == "inconclusive"
    run = run_of({COPY: quiet, MINE: loud})
    used = experiment.derived(run)["used"]()["used"]
    assert used[0] > 0.98 * len(quiet)
    assert used[1] == 0
    assert set(experiment.figures(run)) == set(experiment.drawings(run))


def test_half_width_is_of_what_is_predicted() -> None:
    narrow = run_of({COPY: made(1, rounds=60)})
    wide = run_of({COPY: made(1, rounds=60), swept("copy", 64, "O3"): made(2, rounds=8)})
    unpredicted = run_of({swept("dgemv", 128, "blis", "row"): made(1)})
    assert 0 < half_width(narrow.samples) < half_width(wide.samples)
    assert half_width(unpredicted.samples) == math.inf


@pytest.mark.parametrize(
    "name",
    [
        "mine predicted", "dgemv-blis-row-", "convolution-O9-many", "effects", "$x$ \\frac{",
        "_hidden", "{function}", "copy-O2-2048 predicted", "",
    ],
)  # fmt: skip
def test_no_name_ends_a_figure(name: str) -> None:
    samples = made(1, rounds=6, offsets=[0, 64, 1024, 1088])
    table = pd.concat([samples.assign(function=name), samples.assign(function="mine")])
    run = made_run(experiment, table)
    drawn = experiment.figures(run)
    assert list(drawn) == ["time_other", "effects"]
    assert len(drawn["time_other"].axes) == 2
    for figure in drawn.values():
        assert png(figure)
    assert [finding.about["function"] for finding in experiment.analyse(run)].count(name) == 2


# --- what is refused -----------------------------------------------------------------------------


@needs_this_processor
def test_without_a_blas_the_rest_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        measure,
        "chosen",
        Mock(side_effect=UserError("blas: no BLAS library is found here. Install one")),
    )
    given = {**SMALL, "functions": ["memcpy", "dgemv"], "offsets": [0, 1024, 2048]}
    run = experiment.measure(experiment.params(given))
    assert set(run.samples["function"]) == {"memcpy-256"}
    assert "blas: no BLAS library is found here. Install one" in run.provenance["problems"]
    for only in ({"functions": ["dgemv"]}, {"blas": ["openblas"]}):
        with pytest.raises(UserError, match="no BLAS library is found"):
            experiment.plan(experiment.params(given | only))


# --- for real ------------------------------------------------------------------------------------


@needs_this_processor
@pytest.mark.parametrize("together", [False, True])
def test_a_short_run_lays_the_buffers_where_they_should_be(together: bool) -> None:
    given = {
        **SMALL, "functions": ["convolution", "memcpy"], "levels": ["O2"], "restrict": "both",
        "offsets": [0, 4, 1024, 1028, 2048], "together": together,
    }  # fmt: skip
    run = experiment.measure(experiment.params(given))
    table = run.samples
    assert table["ok"].all()
    assert run.provenance["problems"] == []
    assert set(table["function"]) == {
        "convolution-O2-256", "convolution-O2-restrict-256", "memcpy-256",
    }  # fmt: skip
    distance = (table["second_address"] - table["first_address"]) % 4096
    assert (distance == (2048 if together else table["offset_bytes"])).all()
    assert (table["time_ns"] > 0).all()
    kernels = {kernel["variant"]: kernel for kernel in run.provenance["kernels"]}
    assert "-DAPART=restrict" in kernels["O2-restrict"]["flags"]
    assert set(table["routine"]) == {"convolution", "memcpy"}
    assert experiment.analyse(run)


@pytest.fixture(scope="module")
def threaded(tmp_path_factory: pytest.TempPathFactory) -> Blas:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: apt-get install gcc")
    path = tmp_path_factory.mktemp("blas") / "libthreaded.so"
    argv = ["gcc", "-O1", "-shared", "-fPIC", str(C_SOURCE), "-lpthread", "-o", str(path)]
    subprocess.run(argv, check=True)
    return Blas("threaded", "reference", str(path), "cblas_dgemv", "")


def trials_of(library: Blas, n: int = 256) -> OffsetTrials:
    cpu = min(os.sched_getaffinity(0))
    configuration = Configuration(0, "dgemv", library.name, n, "column", calls=4)
    return OffsetTrials([configuration], [Conditions(cpu=cpu)], [library], [0, 8, 2048], seed=1)


@needs_this_processor
def test_a_blas_that_uses_threads_all_the_same_is_found_out(threaded: Blas) -> None:
    with trials_of(threaded) as trials:
        columns = trials.take(0, 0)
        assert columns["ok"] == [False] * 3
        assert sorted(columns["offset_bytes"]) == [0, 8, 2048]
        assert all(others > 0 for others in columns["others_ns"])
        (problem,) = trials.violated
    assert problem.startswith("dgemv-threaded-column-256: other threads of the process took time")


@needs_this_processor
def test_a_library_that_went_away_is_reported() -> None:
    gone = Blas("gone", "reference", "nowhere/libgone.so", "cblas_dgemv", "")
    with (
        trials_of(gone) as trials,
        pytest.raises(MeasurementError, match=r"libgone\.so cannot be used: .*libgone"),
    ):
        trials.take(0, 0)


@needs_this_processor
def test_a_sample_whose_result_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = Configuration(0, "copy", "O2", 64)
    cpu = min(os.sched_getaffinity(0))
    with OffsetTrials([configuration], [Conditions(cpu=cpu)], [], [0, 4, 8], seed=1) as trials:
        assert trials.take(0, 0)["ok"] == [True] * 3
        right = trials.sweep

        def wrong(wanted: Configuration, offsets: list[int]) -> Any:
            samples = right(wanted, offsets).copy()
            samples["checksum"][1] += 1
            samples["cpu"][2] = -1
            return samples

        monkeypatch.setattr(trials, "sweep", wrong)
        taken = trials.take(1, 0)
        assert taken["ok"] == [True, False, False]
        assert [one is None for one in taken["found"]] == [True, False, True]
        assert any("its result differs" in words for words in trials.violated)
        assert any(f"migrated from cpu{cpu}" in words for words in trials.violated)


def test_calls_fill_the_time_and_long_calls_are_single() -> None:
    class Fake:
        def sweep(self, configuration: Configuration, offsets: list[int]) -> Any:
            each = {"short": 1_000, "middle": 400_000, "long": 5_000_000}[configuration.routine]
            times = np.array([3 * each, each, 2 * each][: len(offsets)])
            return {"timed": {"time_ns": configuration.calls * times}}

    configurations = [
        Configuration(core, name, "b", 1) for core in (0, 1) for name in ("short", "middle", "long")
    ]
    found = with_calls(Fake(), configurations, 1.0)  # type: ignore[arg-type]
    assert [(one.calls, one.warm_calls, one.visits) for one in found[:3]] == [
        (250, 25, 4), (1, 1, 2), (1, 0, 1),
    ]  # fmt: skip
    assert [one.calls for one in found[3:]] == [250, 1, 1]


# --- simulated -----------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="apt-get install qemu-user")
@needs_this_processor
def test_simulated_aliases_are_where_they_are_predicted() -> None:
    found = simulated_aliases({"copy": ["O2"]}, [8, 2048])
    assert "42 stores" in found["model"]
    near, far = (row["aliases_per_element"] for row in found["rows"])
    assert near == pytest.approx(1, abs=0.05)
    assert far == pytest.approx(0, abs=0.05)


@needs_this_processor
def test_a_simulator_that_is_absent_is_a_problem_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        measure, "simulated_aliases", Mock(side_effect=UserError("qemu-x86_64 is not on PATH"))
    )
    given = {
        **SMALL, "functions": ["copy"], "levels": ["O2"], "restrict": "without",
        "offsets": [0, 2048], "simulated_offsets": [0],
    }  # fmt: skip
    run = experiment.measure(experiment.params(given))
    assert run.provenance["problems"] == [
        "4K aliases are not simulated: qemu-x86_64 is not on PATH"
    ]
    assert "simulated" not in run.provenance
