"""allocators as its user meets it: what is planned, measured, claimed and refused."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.aliasing.allocators import experiment, measure
from perflib.experiments.aliasing.allocators.claims import COST, COST_SHARED, SHARES, SHARES_AGAIN
from perflib.experiments.aliasing.allocators.measure import half_width, trials_of
from perflib.experiments.aliasing.allocators.table import AllocatorTable
from perflib.experiments.aliasing.allocators.trials import AllocatorTrials
from perflib.machine.libraries.allocators import Allocator
from perflib.machine.libraries.allocators import allocators as installed
from perflib.measure.process import WorkerError
from perflib.model.errors import UserError
from perflib.model.run import Run
from tests.experiments.aliasing.siblings import with_sibling
from tests.experiments.judged import by_subject, made_run

SMALL: dict[str, Any] = {
    "budget_s": 0.2, "allocators": ["glibc"], "sizes": [64, 1 << 20], "pairs": 3, "processes": 2,
    "timed_sizes": [1024], "sample_ms": 0.02, "cores": [min(os.sched_getaffinity(0))],
}  # fmt: skip
FIRST = 0x7F00_0000_0000


def addresses(
    allocator: str, distance: int | list[int], *, processes: int = 16, state: str = "new",
    size: int = 1 << 20,
) -> pd.DataFrame:  # fmt: skip
    """Two pairs a process; a list gives each process its own distance."""
    each = distance if isinstance(distance, list) else [distance] * processes
    return pd.DataFrame(
        [
            {
                "round": round_, "allocator": allocator, "state": state, "size_bytes": size,
                "first_address": FIRST, "second_address": FIRST + size + apart,
                "function": "", "place": "",
            }
            for round_, apart in enumerate(each)
            for _ in range(2)
        ]
    )  # fmt: skip


def times(
    seed: int, allocator: str = "glibc", *, cost: float = 0.0, other: float = 0.0,
    distance: int = 0, rounds: int = 40, function: str = "convolution", size: int = 8192,
) -> pd.DataFrame:  # fmt: skip
    """Timed places: `same` and `given` cost more, whole processes differ by 10 %."""
    rng = np.random.default_rng(seed)
    longer = {"given": cost + other, "same": cost, "far": 0.0}
    rows = []
    for round_ in range(rounds):
        process = rng.normal(0, 0.1)
        for place, log_ratio in longer.items():
            apart = 2048 if place == "far" else distance
            for visit in range(3):
                log_ns = math.log(2048 * 2.0) + process + log_ratio + rng.normal(0, 0.01)
                rows.append(
                    {
                        "round": round_, "allocator": allocator, "state": "timed",
                        "size_bytes": size, "first_address": FIRST,
                        "second_address": FIRST + 65536 + apart, "function": function,
                        "place": place, "calls": 10, "time_ns": 10 * math.exp(log_ns),
                        "start_ns": 10**9 * round_ + visit,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def run_of(*parts: pd.DataFrame, **params: Any) -> Run:
    return made_run(experiment, pd.concat(parts, ignore_index=True), **params)


# --- addresses -----------------------------------------------------------------------------------


def test_shares_have_their_verdicts() -> None:
    half = [0, 1024] * 8
    found = by_subject(
        experiment.analyse(
            run_of(
                addresses("glibc", 0),
                addresses("glibc", 16, state="again"),
                addresses("jemalloc", 1024),
                addresses("mixed", half),
                addresses("few", 0, processes=2),
                addresses("glibc", 1024, size=5120),  # below large_bytes: not in the claim
            )
        )
    )
    assert {subject: one.verdict for subject, one in found.items()} == {
        "glibc aliasing": "supported",
        "glibc aliasing again": "refuted",
        "jemalloc aliasing": "refuted",
        "mixed aliasing": "inconclusive",
        "few aliasing": "inconclusive",
    }
    assert found["glibc aliasing"].reason == "32 of 32 pairs in 16 processes do."
    again = found["glibc aliasing again"]
    assert (found["glibc aliasing"].of, again.of) == (SHARES, SHARES_AGAIN)
    assert again.about == {"allocator": "glibc"}
    assert [reason.code for reason in again.reasons] == ["excluded", "above"]
    assert again.plain.endswith("0 % share their low 12 bits, and 100 % are just above")
    assert (again.effect, again.low) == (0, 0)
    assert "More processes" in found["mixed aliasing"].reason
    for finding in found.values():
        assert finding.of in experiment.claims
        assert "{" not in finding.plain + finding.claim + finding.reason


def test_a_process_is_one_observation() -> None:
    """Wilson's interval of 16 of 16 observations, however many pairs each process has."""
    few = AllocatorTable(addresses("glibc", 0)).share("glibc", "new")
    many = AllocatorTable(pd.concat([addresses("glibc", 0)] * 10)).share("glibc", "new")
    assert few is not None
    assert many is not None
    assert few.percent == many.percent
    assert few.percent.low == pytest.approx(100 * 16 / (16 + 1.96**2), abs=0.01)
    assert (few.pairs, many.pairs) == (32, 320)
    assert AllocatorTable(addresses("glibc", 0)).share("glibc", "again") is None


def test_the_interval_covers_what_it_says() -> None:
    """Processes that alias with a probability of 0.3: 95 % of intervals hold it."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        apart = np.where(rng.random(24) < 0.3, 0, 1024).tolist()
        share = AllocatorTable(addresses("one", apart)).share("one", "new")
        assert share is not None
        held += share.percent.low <= 30 <= share.percent.high
    assert 180 <= held <= 199


# --- costs ---------------------------------------------------------------------------------------


def test_costs_have_their_verdicts_and_other_effects_do_not_count() -> None:
    found = by_subject(
        experiment.analyse(
            run_of(
                times(1, "glibc", cost=0.12, distance=16),
                times(2, "jemalloc", other=0.3, distance=1024),
                times(3, "mimalloc", cost=0.049, rounds=10),
                times(4, "glibc", function="copy", size=262144),
            )
        )
    )
    assert {subject: one.verdict for subject, one in found.items()} == {
        "glibc cost convolution 8192": "supported",
        "jemalloc cost convolution 8192": "refuted",
        "mimalloc cost convolution 8192": "inconclusive",
        "glibc cost copy 262144": "refuted",
    }
    glibc = found["glibc cost convolution 8192"]
    assert glibc.of is COST
    assert glibc.about == {"allocator": "glibc", "function": "convolution", "size_bytes": 8192}
    assert glibc.low < 100 * math.expm1(0.12) < glibc.high
    assert glibc.evidence["processes_predicted_to_alias_percent"] == 100
    assert glibc.evidence["element_ns"][0] == pytest.approx(2 * math.exp(0.12), rel=0.1)
    jemalloc = found["jemalloc cost convolution 8192"]
    assert jemalloc.evidence["other_effects_percent"][0] == pytest.approx(
        100 * math.expm1(0.3), rel=0.05
    )
    assert jemalloc.evidence["processes_predicted_to_alias_percent"] == 0
    assert jemalloc.reason == f"It is {jemalloc.high:.2g} % at most."


def beside(seed: int, share: float, *, cost: float = 0.0, shared: float = 0.0) -> pd.DataFrame:
    """A sibling that works for a share of the time; then the distance costs that much more."""
    table = times(seed, cost=cost, distance=16)
    near = table["place"].isin(["given", "same"])
    return with_sibling(table, share, seed=seed, period=20, extra=1 + shared * near)


def test_a_cost_is_reported_alone_and_beside_a_sibling() -> None:
    table = beside(1, 0.5, cost=0.12, shared=0.2)
    run = run_of(table, addresses("glibc", 0).assign(cpu=0))
    found = by_subject(experiment.analyse(run))
    assert list(found) == [
        "glibc aliasing", "glibc cost convolution 8192", "glibc cost convolution 8192 shared",
    ]  # fmt: skip
    alone, shared = list(found.values())[1:]
    assert alone.low < 100 * math.expm1(0.12) < alone.high
    assert alone.high - alone.low < 6
    assert shared.low < 100 * (1.2 * math.exp(0.12) - 1) < shared.high
    assert (shared.of, shared.of.kind) == (COST_SHARED, "description")
    assert shared.plain.startswith("While a sibling of the core works, a convolution of 8 KiB")
    cost = experiment.derived(run)["cost"]().iloc[0]
    assert cost["shared_percent"] == pytest.approx(shared.effect)
    labels = experiment.figures(run)["cost"].axes[0].get_legend_handles_labels()[1]
    assert "the distance, sibling busy" in labels


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_null_beside_a_sibling(share: float) -> None:
    found = [
        experiment.analyse(run_of(beside(seed, share), threshold_percent=1.0)) for seed in range(12)
    ]
    assert sum(one[0].verdict == "supported" for one in found) <= 1
    assert sum(one[0].low <= 0 <= one[0].high for one in found) >= 9
    assert {len(one) for one in found} <= ({1} if share == 1 else {1, 2})


def test_an_effect_of_one_third_of_the_run_is_not_supported() -> None:
    table = times(1, cost=0.03, rounds=60)
    late = (table["round"] >= 30) & (table["place"] != "far")
    table.loc[late, "time_ns"] *= 1.3
    (finding,) = experiment.analyse(run_of(table, threshold_percent=5.0))
    assert finding.verdict == "inconclusive"
    assert finding.reasons[0].code in ("segments_disagree", "open")


def test_null_equal_places_are_claimed_in_one_of_twenty_at_most() -> None:
    found = [
        experiment.analyse(run_of(times(seed), threshold_percent=0.01))[0] for seed in range(40)
    ]
    assert sum(one.verdict == "supported" for one in found) <= 2
    assert sum(one.low <= 0 <= one.high for one in found) >= 34


def test_half_width_is_of_the_least_certain_cost() -> None:
    narrow, wide = times(1, rounds=80), times(2, "jemalloc", rounds=8)
    both = pd.concat([narrow, wide])
    assert 0 < half_width(narrow) < half_width(both) < math.inf
    assert half_width(addresses("glibc", 0)) == math.inf
    assert half_width(times(1, rounds=1)) == math.inf


def test_samples_without_times_are_analysed_too() -> None:
    table = addresses("glibc", 0).drop(columns=["function", "place"])
    (finding,) = experiment.analyse(run_of(table))
    assert finding.subject == "glibc aliasing"
    assert list(experiment.figures(run_of(table))) == ["addresses"]


def test_parameters_of_earlier_runs() -> None:
    run = Run("old", "allocators", {"sham": True}, addresses("glibc", 0))
    assert experiment.current(run).params["control"] is True


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"allocators": "glibc,jmalloc"}, "unknown allocator 'jmalloc': did you mean 'jemalloc'"),
        ({"allocators": "/nowhere/libmine.so"}, "there is no file '/nowhere/libmine.so'"),
        ({"sizes": "64,128"}, "large_bytes: no size is of 131072 B or more; the largest is 128 B"),
    ],
)
def test_what_this_machine_lacks_is_reported_before_anything_runs(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        experiment.plan(experiment.params(given))


def piloted(**given: Any) -> dict[str, Any]:
    params = experiment.params({**SMALL, **given})
    return experiment.pilot(params, experiment.plan(params))


def library(folder: Path, name: str, code: str) -> str:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: apt-get install gcc")
    source, path = folder / f"{name}.c", folder / f"lib{name}.so"
    source.write_text(code)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", source, "-o", path], check=True)
    return str(path)


ABORTS = "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n"


def test_a_library_that_is_no_allocator_is_found_out(tmp_path: Path) -> None:
    path = library(tmp_path, "none", "int nothing(void) { return 0; }\n")
    with pytest.raises(UserError, match=r"libnone\.so is preloaded, but malloc comes from .*libc"):
        piloted(allocators=path)


def test_one_that_is_found_and_does_not_work_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Allocator("jemalloc", library(tmp_path, "aborts", ABORTS))

    def found(_wanted: object) -> tuple[list[Allocator], list[str]]:
        return [Allocator("glibc"), broken], ["hoard is not installed: build it"]

    monkeypatch.setattr(measure, "chosen", found)
    plan = piloted(allocators=["all"])
    assert [one["name"] for one in plan["allocators"]] == ["glibc"]
    hoard, jemalloc = plan["absent"]
    assert hoard.startswith("hoard is not installed")
    assert jemalloc.startswith("jemalloc: the program with this allocator ended by signal SIGABRT")


def test_an_inherited_preload_is_not_taken_for_glibc(
    tmp_path: Path,
) -> None:
    path = library(tmp_path, "bump", BUMP)
    with pytest.raises(UserError, match=r"glibc: malloc comes from .*libbump\.so, not from the C"):
        piloted(preload=[path])


# --- for real ------------------------------------------------------------------------------------

# Gives addresses 4096 B apart and more: every two alias.
BUMP = """
#include <stddef.h>
#include <stdint.h>
static _Alignas(4096) char pool[1 << 26];
static size_t used;
void *malloc(size_t size) {
  char *here = pool + used;
  used += (size + 4095) / 4096 * 4096;
  return used <= sizeof pool ? here : NULL;
}
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *p, size_t size) { (void)p; return malloc(size); }
"""


def test_a_users_own_allocator_is_measured_as_it_behaves(tmp_path: Path) -> None:
    path = library(tmp_path, "bump", BUMP)
    given = {**SMALL, "allocators": ["glibc", path], "budget_s": 0.5}
    run = experiment.measure(experiment.params(given))
    table = run.samples
    assert run.provenance["problems"] == []
    assert table["ok"].all()
    assert set(table["allocator"]) == {"glibc", "bump"}
    ours = table[(table["allocator"] == "bump") & (table["state"] != "timed")]
    assert ((ours["second_address"] - ours["first_address"]) % 4096 == 0).all()
    new = table[(table["state"] == "new") & (table["allocator"] == "glibc")]
    assert new.groupby(["round", "size_bytes"]).size().eq(3).all()
    timed = table[table["state"] == "timed"]
    assert set(timed["place"]) == {"given", "same", "far"}
    assert (timed["time_ns"] > 0).all()
    for condition, preload in zip(run.provenance["conditions"], ([], [path]), strict=True):
        assert condition["obtained"]["preload"] == preload
        assert condition["violated"] == []
    assert {"bump aliasing", "glibc aliasing", "bump cost copy 1024"} <= set(
        by_subject(experiment.analyse(run))
    )


@pytest.mark.parametrize("one", [one.name for one in installed() if one.path])
def test_what_is_installed_runs_and_is_used(one: str) -> None:
    run = experiment.measure(experiment.params({**SMALL, "allocators": one}))
    assert set(run.samples["allocator"]) == {one}
    assert run.samples["ok"].all()
    assert run.provenance["problems"] == []


def test_the_control_times_the_same_buffers_twice() -> None:
    run = experiment.measure(experiment.params({**SMALL, "control": True}))
    timed = run.samples[run.samples["state"] == "timed"]
    assert timed["ok"].all()
    where = timed.set_index(["round", "function", "place"])["second_address"]
    given, same, far = (
        where.xs(place, level="place").groupby(level=["round", "function"]).unique().map(list)
        for place in ("given", "same", "far")
    )
    assert (same.map(len) == 1).all()
    assert same.tolist() == far.tolist()
    assert given.tolist() != far.tolist()


def trials(name: str = "glibc", path: str = "", **given: Any) -> AllocatorTrials:
    params: Any = experiment.params({**SMALL, **given})
    allocator = {"name": name, "path": path}
    plan = {"configurations": [(0, 0)], "allocators": [allocator], "cores": SMALL["cores"]}
    return trials_of(params, plan)


def test_only_the_first_processes_record_addresses() -> None:
    taken = trials(processes=2)
    assert {"new", "again", "timed"} == set(taken.take(1, 0)["state"])
    assert set(taken.take(2, 0)["state"]) == {"timed"}


def test_addresses_are_randomised_from_process_to_process() -> None:
    with open("/proc/sys/kernel/randomize_va_space") as file:  # noqa: PTH123
        if file.read().strip() == "0":
            pytest.skip("addresses are not randomised on this machine")
    taken = trials(processes=4)
    assert len({taken.take(round_, 0)["first_address"][0] for round_ in range(4)}) > 1


def test_a_sample_that_is_not_what_it_should_be_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = trials(functions=["copy"], processes=1)
    assert all(taken.take(0, 0)["ok"])
    right = taken._end

    def wrong(*given: Any) -> list[str]:
        lines = [line.split() for line in right(*given)]
        lines[0][3] = "-1"
        lines[1][4] = "7"
        return [" ".join(line) for line in lines]

    monkeypatch.setattr(taken, "_end", wrong)
    columns = taken.take(5, 0)
    assert columns["ok"][:3] == [False, False, True]
    assert columns["found"][:3] == [None, "0x7", None]
    migrated, differs = taken.violated
    assert f"migrated from cpu{SMALL['cores'][0]}" in migrated
    assert "its result differs" in differs


def test_memory_that_runs_out_costs_the_trial_and_says_so(
    tmp_path: Path,
) -> None:
    path = library(tmp_path, "small", BUMP.replace("1 << 26", "1 << 18"))
    with pytest.raises(WorkerError, match=r"small: .* status 1; it reported: .*new 1048576 3"):
        trials("small", path).take(0, 0)
