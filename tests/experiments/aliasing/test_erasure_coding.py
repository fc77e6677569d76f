"""erasure_coding: layouts, what can be had, verification, verdicts, and a short run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.experiments.aliasing.erasure_coding import experiment
from perflib.experiments.aliasing.erasure_coding import measure as erasure_measure
from perflib.experiments.aliasing.erasure_coding.blocks import decode, encode
from perflib.experiments.aliasing.erasure_coding.layouts import (
    IMPLEMENTATIONS,
    LAYOUTS,
    Code,
    Configuration,
    layout_offsets,
)
from perflib.experiments.aliasing.erasure_coding.measure import ErasureTrials, examine
from perflib.experiments.aliasing.erasure_coding.table import ErasureTable
from perflib.kernels import build, source
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding
from tests.experiments.aliasing.siblings import with_sibling
from tests.experiments.judged import by_subject, made_run
from tests.reference import erasure_coding as reference

CPU = min(os.sched_getaffinity(0))
CODE = Code(4, 2, 8192)
HERE = Conditions(cpu=CPU)


# --- where the blocks begin ----------------------------------------------------------------------


@given(data=st.integers(1, 255), parity=st.integers(1, 255))
def test_layouts_keep_their_word_about_the_low_12_bits(data: int, parity: int) -> None:
    parity = min(parity, 256 - data)
    low = {name: [at % 4096 for at in layout_offsets(name, data, parity)] for name in LAYOUTS}
    assert set(low["aligned"]) == {0}
    assert len(set(low["staggered"])) == data + parity
    assert [(at + 2048) % 4096 for at in low["staggered"]] == low["shifted"]
    assert low["chasing"][:data] == low["staggered"][:data]
    for name in LAYOUTS:
        offsets = layout_offsets(name, data, parity)
        assert len(offsets) == data + parity
        assert all(at % 16 == 0 and 0 <= at <= 16384 for at in offsets)


# --- what can be had -----------------------------------------------------------------------------


def test_every_implementation_that_can_be_had_is_verified() -> None:
    found, absent = examine(list(IMPLEMENTATIONS), CODE, 1, 0.01, HERE)
    assert set(found) | set(absent) == set(IMPLEMENTATIONS)
    assert "ours_table" in found
    for name, why in absent.items():
        assert re.search("is not installed: 'apt-get install|has no AVX2", why), (name, why)
    alike = {"ours_table", "ours_simd", "isal", "isal_avx2"} & set(found)
    assert len({(found[name]["matrix"], found[name]["parity_checksum"]) for name in alike}) == 1
    if "jerasure_cauchy" in found:
        assert found["jerasure_cauchy"]["matrix"] is None
        assert found["jerasure_vandermonde"]["matrix"] is not None
    assert all(one["repeats"] >= 1 for one in found.values())


def no_library(monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    def without(name: str) -> Any:
        if name != "erasure_coding":
            msg = f"kernel {name!r} does not compile; gcc says:\n{says}"
            raise MeasurementError(msg)
        return build(name)

    monkeypatch.setattr(erasure_measure, "build", without)


@pytest.mark.parametrize(
    "says", ["fatal error: cauchy.h: No such file or directory", "ld: cannot find -lisal: ..."]
)
def test_absent_libraries_are_said_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    no_library(monkeypatch, says)
    run = experiment.measure(small())
    assert set(run.samples["implementation"]) <= {"ours_table", "ours_simd"}
    assert (
        "isal, isal_avx2: ISA-L is not installed: 'apt-get install libisal-dev' (Debian, Ubuntu)"
        in run.provenance["problems"]
    )
    assert (
        "jerasure_vandermonde, jerasure_cauchy: Jerasure is not installed: 'apt-get install "
        "libjerasure-dev' (Debian, Ubuntu)" in run.provenance["problems"]
    )


def test_none_available_is_an_error_with_all_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    no_library(monkeypatch, "fatal error: No such file or directory")
    with pytest.raises(MeasurementError, match=r"none of .* isal: ISA-L is not installed"):
        experiment.measure(small(implementations="isal"))


def test_a_processor_without_the_instructions_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Worker.call

    def refusing(self: Worker, function: str, *arguments: Any, **rest: Any) -> Any:
        if function == "erasure_open" and arguments[0] == 1:
            return 95, []  # ENOTSUP
        return real(self, function, *arguments, **rest)

    monkeypatch.setattr(Worker, "call", refusing)
    found, absent = examine(["ours_table", "ours_simd"], CODE, 1, 1.0, HERE)
    assert list(found) == ["ours_table"]
    assert absent == {"ours_simd": "this processor has no AVX2"}


def lying(monkeypatch: pytest.MonkeyPatch, function: str, number: int, wrong: Any) -> None:
    """The n-th answer of a function has another output."""
    real, seen = Worker.call, [0]

    def call(self: Worker, name: str, *arguments: Any, **rest: Any) -> Any:
        answer, outputs = real(self, name, *arguments, **rest)
        if name == function:
            seen[0] += 1
            if seen[0] == number:
                outputs = [wrong(output.copy()) for output in outputs]
        return answer, outputs

    monkeypatch.setattr(Worker, "call", call)


def test_wrong_decoding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lying(monkeypatch, "erasure_checksums", 3, lambda sums: sums + np.uint64(1))
    found, absent = examine(["ours_table"], CODE, 1, 1.0, HERE)
    assert not found
    assert re.search(
        r"blocks \[4, 5\] were lost, and it decodes them wrongly", absent["ours_table"]
    )


def test_parity_that_is_not_the_matrixs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lying(monkeypatch, "erasure_matrix", 1, lambda matrix: matrix ^ np.uint8(1))
    _, absent = examine(["ours_table"], CODE, 1, 1.0, HERE)
    assert absent["ours_table"].startswith("its parity is not that of its matrix")


# --- trials ---------------------------------------------------------------------------------------


def trials(examined: Mapping[str, Mapping[str, Any]]) -> ErasureTrials:
    configurations = [Configuration(0, name) for name in examined]
    return ErasureTrials(CODE, LAYOUTS, examined, [HERE], configurations, 1)


def test_other_parity_than_at_first_is_marked_and_said() -> None:
    found, _ = examine(["ours_table"], CODE, 1, 0.01, HERE)
    found["ours_table"]["parity_checksum"] += 1
    with trials(found) as taken:
        columns = taken.take(0, 0)
        assert columns["ok"] == [False] * 4
        assert {int(one, 16) for one in columns["expected"]} == {
            int(one, 16) + 1 for one in columns["found"]
        }
        (said,) = taken.violated
        assert said.startswith(f"cpu{CPU} made other parity by ours_table than at first: a core")


def test_blocks_at_other_places_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = examine(["ours_table"], CODE, 1, 0.01, HERE)
    lying(monkeypatch, "erasure_lay", 1, lambda addresses: addresses + np.uint64(64))
    with trials(found) as taken:
        columns = taken.take(0, 0)
        assert columns["ok"] == [False, True, True, True]
        first = columns["layout"][0]
        assert taken.violated == [f"blocks did not begin where layout {first!r} has them"]


# --- parameters ----------------------------------------------------------------------------------


def small(**changed: Any) -> Any:
    given_: dict[str, Any] = {"block_mib": 1 / 64, "budget_s": 0.5, "trial_ms": 0.1, "cores": [CPU]}
    return experiment.params({**given_, **changed})


def test_blocks_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasure_measure, "free_bytes", lambda: 70 << 20)
    with pytest.raises(
        UserError, match=r"14 blocks of 4 MiB are 56 MiB, and 70 MiB are free.*2 at"
    ):
        experiment.plan(small(block_mib=4))


# --- analysis ------------------------------------------------------------------------------------


def samples(
    cost: Mapping[str, float],
    *,
    rounds: int = 60,
    cores: int = 2,
    noise: float = 0.01,
    seed: int = 1,
    names: tuple[str, ...] = ("ours_table", "isal"),
) -> pd.DataFrame:
    """A simulated machine: ``cost`` of a layout in percent; all drift alike over the rounds."""
    rng = np.random.default_rng(seed)
    drift = rng.normal(0, 0.02, rounds).cumsum()
    rows = [
        {
            "round": round_,
            "cpu": cpu,
            "implementation": name,
            "layout": layout,
            "data_bytes": 40 << 20,
            "time_ns": 5e6
            * (1 + number)
            * (1 + cost.get(layout, 0.0) / 100)
            * np.exp(drift[round_] + rng.normal(0, noise)),
            "start_ns": round_ * 10**9 + 10**7 * position,
        }
        for round_ in range(rounds)
        for position, (number, name, cpu, layout) in enumerate(
            (number, name, cpu, layout)
            for number, name in enumerate(names)
            for cpu in range(cores)
            for layout in LAYOUTS
        )
    ]
    return pd.DataFrame(rows)


def found_in(table: pd.DataFrame, ways: int | None = 8) -> dict[str, Finding]:
    caches = [{"level": 1, "kind": "data", "ways": ways}]
    run = made_run(experiment, table, {"machine": {"caches": caches}})
    return by_subject(experiment.analyse(run))


def test_layouts_that_cost_are_found_and_the_others_refuted() -> None:
    found = found_in(samples({"aligned": 12.0}))
    assert list(found) == [
        "ours_table", "ours_table chasing", "ours_table shifted",
        "isal", "isal chasing", "isal shifted",
    ]  # fmt: skip
    for name in ("ours_table", "isal"):
        assert found[name].verdict == "supported"
        assert found[name].low < 12 < found[name].high
        assert found[name].evidence["l1d_ways"] == 8
        assert set(found[name].evidence["percent_by_core"]) == {"cpu0", "cpu1"}
        assert found[f"{name} chasing"].verdict == "refuted"
        assert found[f"{name} shifted"].verdict == "refuted"


@pytest.mark.parametrize("seed", range(20))
def test_null_equal_layouts_are_not_distinguished(seed: int) -> None:
    found = found_in(samples({}, seed=seed))
    assert {one.verdict for one in found.values()} <= {"refuted", "inconclusive"}
    assert found["isal"].verdict == "refuted"


# --- the sibling ---------------------------------------------------------------------------------


def sliced(
    cost: Mapping[str, float], share: float, *, shared: float = 0.0, seed: int = 1
) -> pd.DataFrame:
    """Eight slices a trial; a sibling for a share of the time: aligned blocks cost more there."""
    table = samples(cost, rounds=24, seed=seed)
    table = table.loc[table.index.repeat(8)].reset_index(drop=True)
    table = table.assign(time_ns=table["time_ns"] / 20, data_bytes=2 << 20)
    aligned = table["layout"] == "aligned"
    return with_sibling(table, share, seed=seed, slower=1.5, period=40, extra=1 + shared * aligned)


def test_layouts_and_speeds_alone_and_beside_a_sibling() -> None:
    found = found_in(sliced({"aligned": 12.0}, 0.5, shared=0.3))
    assert list(found)[6:] == [
        "ours_table shared", "ours_table chasing shared", "ours_table speed shared",
        "isal shared", "isal chasing shared", "isal speed shared",
    ]  # fmt: skip
    for name in ("ours_table", "isal"):
        assert found[name].verdict == "supported"
        assert found[name].low < 12 < found[name].high
        assert found[f"{name} chasing"].verdict != "supported"
        shared = found[f"{name} shared"]
        assert shared.low < 100 * (1.12 * 1.3 - 1) < shared.high
        assert shared.of.kind == "description"
        speed = found[f"{name} speed shared"]
        assert speed.verdict == "supported"
        assert speed.low < 50 < speed.high
        assert "MB/s next to a busy sibling" in speed.plain


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_null_beside_a_sibling(share: float) -> None:
    for seed in range(3):
        found = found_in(sliced({}, share, seed=seed))
        claimed = {name for name, one in found.items() if one.verdict == "supported"}
        assert all(name.endswith("speed shared") for name in claimed)
        assert len(found) > 6 or share != 0.5


# --- both ways -----------------------------------------------------------------------------------


def test_shifted_is_tested_both_ways() -> None:
    faster = found_in(samples({"shifted": -5.0}))["isal shifted"]
    assert faster.verdict == "supported"
    assert faster.low < -5 < faster.high
    assert found_in(samples({"shifted": 5.0}))["isal shifted"].verdict == "supported"
    near = found_in(samples({"shifted": -1.0}, noise=0.03))["isal shifted"]
    assert near.verdict == "inconclusive"


def test_a_set_that_holds_all_blocks_is_not_blamed() -> None:
    table = samples({"aligned": 12.0})
    blamed = found_in(table)["isal"]
    assert blamed.reasons[-1].code == "one_set"
    assert blamed.reasons[-1].numbers == {"blocks": 14, "ways": 8}
    for ways in (14, None):
        codes = [one.code for one in found_in(table, ways=ways)["isal"].reasons]
        assert "one_set" not in codes


def test_what_one_third_of_the_run_lacks_is_not_supported() -> None:
    table = samples({"aligned": 40.0})
    late = (table["round"] >= 40) & (table["layout"] == "aligned")
    table.loc[late, "time_ns"] /= 1.41
    found = found_in(table)["isal"]
    assert found.verdict == "inconclusive"
    if found.low > 1:
        assert found.reasons[0].code == "segments_disagree"


def test_an_implementation_that_one_core_lacks_has_no_mean_of_the_cores() -> None:
    table = samples({})
    lacking = table[~((table["implementation"] == "isal") & (table["cpu"] == 1))]
    found = found_in(lacking)["isal"]
    assert found.verdict == "inconclusive"
    assert np.isfinite(found.evidence["percent_by_core"]["cpu0"]).all()


def test_tables_of_a_users_own_are_checked_for_what_is_needed() -> None:
    table = samples({}, rounds=4)
    with pytest.raises(UserError, match="no sample has the layout 'staggered'"):
        ErasureTable(table[table["layout"] != "staggered"])
    named = table.replace({"implementation": {"isal": "mine"}, "layout": {"shifted": "odd"}})
    found = ErasureTable(named)
    assert found.implementations == ["ours_table", "mine"]
    assert found.layouts == ["aligned", "staggered", "chasing", "odd"]
    assert list(found_in(named))[-2:] == ["mine", "mine chasing"]


# --- for real ------------------------------------------------------------------------------------


def test_a_short_run_measures_every_configuration() -> None:
    run = experiment.measure(small(implementations="ours_table,ours_simd"))
    table = run.samples
    assert table["ok"].all()
    measured = set(run.provenance["plan"]["implementations"])
    assert "ours_table" in measured
    assert set(table["implementation"]) == measured
    assert set(table["layout"]) == set(LAYOUTS)
    assert (table["time_ns"] > 0).all()
    assert {one.subject for one in experiment.analyse(run)} >= {"ours_table", "ours_table shifted"}
    assert set(experiment.figures(run)) == {"speed", "layout_cost"}


def test_kernels_have_one_interface() -> None:
    """What the three kernels have in common stands in each of them, for cffi: word for word."""
    common = source("erasure_isal").cdef
    assert source("erasure_jerasure").cdef == common
    assert source("erasure_coding").cdef.startswith(common.rstrip())


# --- the code on numpy arrays --------------------------------------------------------------------


def content(blocks: int = 10, size: int = 100) -> Any:
    return np.random.default_rng(4).integers(0, 256, (blocks, size), dtype=np.uint8)


def test_arrays_are_encoded_and_decoded() -> None:
    data = content()
    whole = encode(data, 4)
    assert (whole == reference.encode(reference.cauchy(10, 4), data)).all()
    damaged = whole.copy()
    damaged[[0, 5, 9, 12]] = 0
    assert (decode(damaged, 4, [12, 0, 9, 5, 5]) == whole).all()
    assert (damaged[0] == 0).all(), "the argument stays as it was"
    assert (encode(np.asfortranarray(data), 4) == whole).all()
    assert (decode(np.asfortranarray(whole), 4, []) == whole).all()


@pytest.mark.parametrize(
    ("blocks", "parity", "lost", "says"),
    [
        (content().astype(float), 4, [0], "dtype float64"),
        (content()[0], 4, [0], r"shape \(100,\)"),
        (content()[:, :0], 4, [0], r"shape \(10, 0\)"),
        (content(14), 14, [0], "at least one is of data"),
        (content(14), 0, [0], "parity_blocks: 0"),
        (content(14), 4, [14], "there is no block 14; they go from 0 to 13"),
        (content(14), 4, [-1], "there is no block -1"),
        (content(14), 4, [0, 1, 2, 3, 4], "lost: 5 blocks are lost, and 4 of parity can make up"),
    ],
)
def test_wrong_arrays_and_numbers_are_refused(
    blocks: Any, parity: int, lost: list[int], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        decode(blocks, parity, lost)
