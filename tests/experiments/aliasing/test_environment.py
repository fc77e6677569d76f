"""alias_environment as its user meets it: sizes predicted, started, simulated and compared."""

from __future__ import annotations

import os
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from perflib.experiments.aliasing.environment import (
    AliasEnvironmentParams,
    experiment,
    measure,
    simulated,
    trials,
)
from perflib.experiments.aliasing.environment.addresses import pairs_of
from perflib.experiments.aliasing.environment.claims import ENVIRONMENT_SHARED
from perflib.experiments.aliasing.environment.measure import sets_of
from perflib.experiments.aliasing.environment.simulated import simulated_aliases
from perflib.experiments.aliasing.environment.starts import (
    Program,
    Start,
    read_line,
    start,
)
from perflib.experiments.aliasing.environment.table import AliasEnvTable
from perflib.experiments.aliasing.environment.trials import Configuration, EnvironmentTrials
from perflib.kernels import build
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker, WorkerError
from perflib.measure.schedule import Status
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from tests.experiments.aliasing.siblings import never_alone, with_sibling
from tests.experiments.judged import by_subject, made_run

FIRST, STEP, SIZES = 32, 64, 128
PREDICTED = (2784, 6880)
ORDERS = ("loop table buffer", "table loop buffer", "table buffer loop")
CPU = min(os.sched_getaffinity(0))
SMALL: dict[str, Any] = {
    "budget_s": 0.5, "starts": 2, "iterations": 256, "repetitions": 1, "simulate": False,
    "step_bytes": 512, "periods": 1, "cores": [CPU], "aslr_starts": 2, "link_orders": 2,
}  # fmt: skip
needs_qemu = pytest.mark.skipif(
    shutil.which(f"qemu-{os.uname().machine}") is None, reason="apt-get install qemu-user"
)


# --- a machine with known faults -----------------------------------------------------------------


def samples(
    *, cost: float = 0.0, order_cost: float = 0.0, rounds: int = 8, noise: float = 0.01,
    held: bool = False, seed: int = 1, drift: float = 0.3,
) -> pd.DataFrame:  # fmt: skip
    """Rows of a run: predicted sizes cost so much more; the machine slows in bursts of a second."""
    generator = np.random.default_rng(seed)
    starts = [("environment", FIRST + STEP * n, "") for n in range(SIZES)]
    starts += [("environment", size, "") for size in PREDICTED] * 7
    starts += [("link order", PREDICTED[0], order) for order in ORDERS] * 4
    starts += [("aslr", PREDICTED[0], "")] * 10
    every = pd.DataFrame(starts, columns=["kind", "environment_bytes", "link_order"])
    parts = [every.iloc[generator.permutation(len(every))].assign(round=n) for n in range(rounds)]
    table = pd.concat(parts, ignore_index=True)
    swept = table["kind"] == "environment"
    marked = swept & table["environment_bytes"].isin(PREDICTED)
    ordered = table["link_order"] == ORDERS[1]
    table["pairs"] = np.where(marked & (not held), "g-i", np.where(ordered, "inc-j", ""))
    table["predicted"] = marked | ordered
    table["start_ns"] = 8_000_000 * np.arange(len(table))
    slow = 1 + drift * (table["start_ns"] // 10**9 % 2)
    table["least_ns"] = 78_000 * slow * np.exp(generator.normal(0, noise, len(table)))
    table["least_ns"] *= 1 + cost * (marked & (not held)) + order_cost * ordered
    return table.assign(
        cpu=0, time_ns=8 * table["least_ns"], core_mhz=3000.0 / slow, ok=True,
        inc_address=generator.integers(1 << 40, size=len(table)),
        stalls=(1000.0 * (1 + (table["pairs"] != ""))).where(swept),
        **{"page-faults": (61.0 + (table["environment_bytes"] % 4096 > 2000)).where(swept)},
    )  # fmt: skip


def counts(spikes: tuple[int, ...] = PREDICTED, elsewhere: bool = False) -> dict[str, Any]:
    rows = [
        {
            "environment_bytes": size, "aliases_per_iteration": 2.0 * (size in spikes),
            "pairs": "g-i" if size in spikes else "", "same_place": not elsewhere,
        }
        for size in range(FIRST, FIRST + STEP * SIZES, STEP)
    ]  # fmt: skip
    return {"model": "store buffer of 42 stores", "tool": "none", "shift_bytes": 0, "rows": rows}


def run_of(table: pd.DataFrame, found: dict[str, Any] | None = None) -> Run:
    return made_run(experiment, table, {"simulated": found} if found else {})


def findings(table: pd.DataFrame, found: dict[str, Any] | None = None) -> dict[str, Finding]:
    return by_subject(experiment.analyse(run_of(table, found)))


# --- what is claimed -----------------------------------------------------------------------------


def test_a_machine_that_aliases_is_slower_at_the_predicted_sizes() -> None:
    named = findings(samples(cost=0.2, order_cost=0.2), counts())
    assert {name: finding.verdict for name, finding in named.items()} == dict.fromkeys(
        ["environment", "simulated environment", "link order", "link order aliases", "aslr"],
        "supported",
    )
    found = named["environment"]
    assert found.low < 20 < found.high
    assert found.high - found.low < 3
    assert found.evidence["predicted_bytes"] == list(PREDICTED)
    assert found.evidence["pairs"] == dict.fromkeys(PREDICTED, "g-i")
    assert named["link order"].evidence["slowest"] == ORDERS[1]


def test_a_machine_that_does_not_is_refuted_with_a_bound() -> None:
    named = findings(samples(noise=0.004), counts())
    found = named["environment"]
    assert found.verdict == "refuted"
    assert found.low < 0 < found.high < 1
    assert found.reasons[-1].code == "at_most"
    assert found.reasons[-1].numbers["most"] == found.high
    assert named["link order"].verdict != "supported"
    assert named["link order aliases"].verdict == "refuted"
    assert named["simulated environment"].verdict == "supported"


def test_null_variables_at_a_fixed_place_find_nothing() -> None:
    claimed = [
        findings(samples(held=True, seed=seed, rounds=5))["environment"].verdict
        for seed in range(10)
    ]
    assert "supported" not in claimed
    assert claimed.count("refuted") >= 8


def test_one_round_and_no_predicted_size_say_why() -> None:
    one = findings(samples(rounds=1))["environment"]
    assert (one.verdict, one.reasons[0].code) == ("inconclusive", "no_interval")
    table = samples(rounds=3)
    none = findings(table[~table["environment_bytes"].isin(PREDICTED)])["environment"]
    assert none.verdict == "inconclusive"
    assert none.reasons[0].code == "never_agree"
    assert AliasEnvTable(table[~table["environment_bytes"].isin(PREDICTED)]).half_width == 0


@pytest.mark.parametrize(
    ("given", "verdict", "code", "numbers"),
    [
        (None, "inconclusive", "not_simulated", {}),
        (counts(), "supported", "spikes", {"right": 2, "predicted": 2, "others": 0}),
        (counts(PREDICTED[:1]), "refuted", "spikes", {"right": 1, "predicted": 2, "others": 0}),
        (counts((*PREDICTED, FIRST)), "refuted", "spikes",
         {"right": 2, "predicted": 2, "others": 1}),
        (counts(elsewhere=True), "inconclusive", "elsewhere", {"count": SIZES}),
    ],
)  # fmt: skip
def test_the_simulated_count_must_have_the_predicted_spikes_and_no_others(
    given: dict[str, Any] | None, verdict: str, code: str, numbers: dict[str, int]
) -> None:
    found = findings(samples(rounds=2), given)["simulated environment"]
    (reason,) = found.reasons
    assert (found.verdict, reason.code, reason.numbers) == (verdict, code, numbers)


def test_held_variables_have_no_spike() -> None:
    found = findings(samples(rounds=2, held=True), counts(()))["simulated environment"]
    assert (found.verdict, found.effect) == ("inconclusive", 0)
    found = findings(samples(rounds=2, held=True), counts())["simulated environment"]
    assert (found.verdict, found.effect) == ("refuted", 2)


def test_random_addresses_agree_as_rarely_as_places_do() -> None:
    table = samples(rounds=5)
    found = findings(table)["aslr"]
    assert found.verdict == "supported"
    assert found.evidence["expected_percent"] == pytest.approx(100 * 2 / SIZES)
    on = table["kind"] == "aslr"
    assert findings(table.assign(predicted=table["predicted"] | on))["aslr"].verdict == "refuted"
    same = findings(table.assign(inc_address=5))["aslr"]
    assert (same.verdict, same.reasons[0].code) == ("inconclusive", "fixed")


def test_link_orders_of_which_all_or_none_alias_are_not_compared_by_it() -> None:
    table = samples(rounds=3)
    none = table["link_order"] != ORDERS[1]
    assert "link order aliases" not in findings(table[none])
    assert "link order" in findings(table[none])
    assert "link order" not in findings(table[table["kind"] == "environment"])


# --- the sibling ---------------------------------------------------------------------------------


def beside(share: float, *, cost: float = 0.0, shared: float = 0.0, seed: int = 1) -> pd.DataFrame:
    """A sibling that works for a share of the time; then predicted sizes cost that much more."""
    table = samples(cost=cost, drift=0.0, seed=seed, rounds=12)
    marked = table["predicted"] & (table["kind"] == "environment")
    return with_sibling(
        table, share, seed=seed, extra=1 + shared * marked, columns=["least_ns"]
    ).drop(columns="core_mhz")


def test_where_no_sample_had_the_core_alone_that_is_open_and_drawn() -> None:
    table = never_alone(samples(rounds=4, cost=0.2, drift=0.0))
    assert findings(table, counts())["environment"].verdict == "inconclusive"
    run = run_of(table, counts())
    assert {"environment", "counters", "link_order", "aslr"} <= set(experiment.figures(run))


def test_the_cost_of_a_size_alone_and_beside_a_sibling() -> None:
    named = findings(beside(0.5, cost=0.2, shared=0.3), counts())
    alone, shared = named["environment"], named["environment shared"]
    assert alone.verdict == shared.verdict == "supported"
    assert alone.low < 20 < alone.high
    assert shared.low < 100 * (1.2 * 1.3 - 1) < shared.high
    assert (shared.of, shared.of.kind) == (ENVIRONMENT_SHARED, "description")
    assert "{" not in shared.plain + shared.claim + shared.reason
    assert named["simulated environment"].verdict == "supported", "of all starts"
    assert named["aslr"].evidence == findings(samples(rounds=12))["aslr"].evidence


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_null_beside_a_sibling(share: float) -> None:
    found = [findings(beside(share, seed=seed)) for seed in range(5)]
    claims = [one for named in found for one in named.values() if one.of.kind == "anomaly"]
    assert sum(one.verdict == "supported" for one in claims) <= 1
    if share in (0.5, 1.0):
        assert all(("environment shared" in named) is (share < 1) for named in found)


# --- counters ------------------------------------------------------------------------------------


def test_null_counters_do_not_go_with_time_that_is_noise() -> None:
    ranked = AliasEnvTable(samples()).ranking().set_index("counter")
    assert (ranked.loc[["stalls", "page-faults"], "p"] > 0.01).all()


# --- predictions ---------------------------------------------------------------------------------


def test_accesses_of_four_bytes_overlap_when_less_than_four_bytes_apart() -> None:
    far = {"i": 0x5000, "j": 0x5400, "k": 0x5800, "g": 0x7F000C00}
    for apart, overlaps in ((-4, False), (-3, True), (0, True), (3, True), (4, False)):
        assert pairs_of({**far, "inc": 0x7F004000 + apart}) == (["inc-i"] if overlaps else [])


def planned(given: dict[str, Any]) -> dict[str, Any]:
    """The plan with what the pilot adds to it."""
    params = AliasEnvironmentParams.make(given)
    plan = experiment.plan(params)
    return {**plan, **experiment.pilot(params, plan)}


@pytest.fixture(scope="module")
def _fixed_addresses() -> None:
    """Skip where ASLR cannot be switched off for a process."""
    try:
        planned({**SMALL, "link_orders": 0})
    except MeasurementError as error:
        pytest.skip(str(error))


needs_fixed_addresses = pytest.mark.usefixtures("_fixed_addresses")


@needs_fixed_addresses
def test_predicted_sizes_are_those_at_which_printed_addresses_agree() -> None:
    plan = planned({**SMALL, "step_bytes": 16, "link_orders": 0})
    predicted = {int(size): pairs for size, pairs in plan["predicted"].items()}
    assert 1 <= len(predicted) <= 2, "each period has one, or two next to each other"
    params = AliasEnvironmentParams.make({**SMALL, "step_bytes": 16})
    program = Program(build("alias_environment", executable=True).library, 256, 1)
    with Worker(build("alias_environment"), params.launcher_conditions(CPU)) as worker:
        for size in sorted(
            {near for at in predicted for near in (at - 16, at, at + 16, at + 4096)}
        ):
            found = start(worker, program, size, variables={})
            assert found.reported["environment_bytes"] == size
            period = (size - FIRST) % 4096 + FIRST
            assert pairs_of(found.addresses) == predicted.get(period, [])


# --- for real ------------------------------------------------------------------------------------


def around_a_predicted_size() -> dict[str, Any]:
    """Parameters with which a coarse sweep passes through a predicted size."""
    plan = planned({**SMALL, "step_bytes": 16, "link_orders": 0})
    first = min(int(size) for size in plan["predicted"])
    return {**SMALL, "environment_bytes": (first - FIRST) % 512 + FIRST}


@needs_fixed_addresses
def test_a_short_run_reports_what_every_start_had() -> None:
    run = experiment.measure(experiment.params(around_a_predicted_size()))
    table = run.samples
    assert table["ok"].all(), run.provenance["problems"]
    sweep = table[table["kind"] == "environment"]
    assert (sweep["predicted"] == (sweep["pairs"] != "")).all()
    assert sweep["predicted"].any()
    assert len(set(sweep["environment_bytes"])) == 8
    assert (table["wall_ns"] > table["time_ns"]).all()
    assert set(table["kind"]) == {"environment", "link order", "aslr"}
    assert (sweep["inc_address"] + sweep["environment_bytes"]).nunique() == 1
    subjects = {finding.subject for finding in experiment.analyse(run)}
    assert {"environment", "simulated environment"} <= subjects
    starts = experiment.derived(run)["starts"]()
    assert (starts["as_requested"] == starts["starts"]).all()
    experiment.check_samples(table)


@needs_fixed_addresses
def test_held_variables_stay() -> None:
    run = experiment.measure(experiment.params({**around_a_predicted_size(), "variables": "hold"}))
    table = run.samples
    assert table["ok"].all(), run.provenance["problems"]
    assert set(table["kind"]) == {"environment"}
    assert set(table["pairs"]) == {""}
    assert (table["inc_address"] % 4096).nunique() == 1
    assert table["predicted"].any(), "the sizes at which they would agree were they free"


@needs_fixed_addresses
def test_own_variables_and_priority_are_handed_on() -> None:
    given_ = {**SMALL, "environment": {"A": "12345"}, "sets": ["none"], "link_orders": 0}
    plan = planned(given_)
    assert plan["sizes"][0] == 32, "8 bytes of A, 17 of the padding, rounded up"
    assert plan["sets"] == []
    with pytest.raises(UserError, match="it has 25 bytes at least"):
        experiment.plan(AliasEnvironmentParams.make({**given_, "environment_bytes": 24}))


@needs_qemu
@needs_fixed_addresses
def test_simulated_aliases_stand_where_printed_addresses_agree() -> None:
    params = AliasEnvironmentParams.make({**SMALL, "step_bytes": 16, "link_orders": 0})
    plan = planned(params.model_dump(mode="json"))
    predicted = min(int(size) for size in plan["predicted"])
    program = Program(build("alias_environment", executable=True).library, 64, 1)
    found = simulated_aliases(
        program, [predicted - 16, predicted, predicted + 2048], variables={},
        origin=(plan["sizes"][0], plan["origin"]), at_once=2,
    )  # fmt: skip
    counts = [row["aliases_per_iteration"] for row in found["rows"]]
    assert counts[1] > 1.5
    assert max(counts[0], counts[2]) < 0.5
    assert all(row["same_place"] for row in found["rows"])
    assert found["rows"][1]["pairs"] == " ".join(plan["predicted"][str(predicted)])
    assert "low 12 bits" in found["model"]
    held = planned({**params.model_dump(mode="json"), "variables": "hold"})
    found = simulated_aliases(
        replace(program, variables="hold"), [predicted], variables={}, at_once=1,
        origin=(held["sizes"][0], held["origin"]),
    )  # fmt: skip
    assert found["rows"][0]["aliases_per_iteration"] < 0.5
    assert found["rows"][0]["same_place"]


@needs_fixed_addresses
@pytest.mark.parametrize("way", ["stop", "Ctrl-C"])
def test_an_interrupted_simulation_keeps_the_samples(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    begun: list[int] = []

    def begin(argv: list[str], **_: Any) -> pd.DataFrame:
        begun.append(1)
        line = "i=16 j=20 k=24 g=4 inc=0 least_ns=1 sums=1,1,1"
        Path(argv[-1]).write_text(line)
        if len(begun) > 4:
            time.sleep(0.05)  # who waits for the results needs a core, to see the end
        if way == "Ctrl-C" and len(begun) > 3:
            raise KeyboardInterrupt
        return pd.DataFrame({"counter": [], "symbol": [], "simulated_count": [], "tool": []})

    stop = threading.Event()
    left_s: list[float] = []

    def progress(status: Status) -> None:
        left_s.append(status.left_s)
        if way == "stop" and begun:
            stop.set()

    monkeypatch.setattr(simulated, "qemu_counts", begin)
    given_ = {**SMALL, "budget_s": 0.1, "simulate": True, "step_bytes": 16}
    run = experiment.measure(experiment.params(given_), progress, stop)
    assert "aliases are not simulated: it was interrupted" in run.provenance["problems"]
    assert "simulated" not in run.provenance
    assert len(run.samples) > 200
    assert len(begun) < 256
    assert left_s


@needs_fixed_addresses
def test_without_qemu_the_run_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        simulated,
        "qemu_counts",
        Mock(side_effect=UserError("qemu-x86_64 is not on PATH. Install it")),
    )
    run = experiment.measure(experiment.params({**SMALL, "budget_s": 0.1, "simulate": True}))
    assert (
        "aliases are not simulated: qemu-x86_64 is not on PATH. Install it"
        in (run.provenance["problems"])
    )
    assert "simulated" not in run.provenance
    named = by_subject(experiment.analyse(run))
    assert named["simulated environment"].verdict == "inconclusive"


# --- what goes wrong -----------------------------------------------------------------------------


def test_an_environment_larger_than_one_variable_holds() -> None:
    with pytest.raises(UserError, match=r"would end at an environment of \d+ bytes.*begin at"):
        experiment.plan(AliasEnvironmentParams.make({**SMALL, "environment_bytes": 131072}))


@pytest.fixture
def _small_stack() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (512 << 10, hard))
    yield
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


@pytest.mark.usefixtures("_small_stack")
def test_an_environment_larger_than_the_system_allows() -> None:
    given_ = {**SMALL, "environment": {"A": "x" * 100_000}, "environment_bytes": 131072}
    with pytest.raises(UserError, match="bytes is larger than this system allows"):
        planned(given_)


def test_aslr_must_be_off_for_the_sweep() -> None:
    with pytest.raises(UserError, match="aslr must be false"):
        experiment.plan(AliasEnvironmentParams.make({**SMALL, "aslr": True}))


def test_a_system_that_keeps_randomising_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = iter(range(1 << 20, 1 << 30, 48))

    def random_start(*_: Any, **__: Any) -> Start:
        where = next(draw)
        return Start(dict.fromkeys(("i", "j", "k", "g", "inc"), where), 0, 0)

    monkeypatch.setattr(measure, "start", random_start)
    with pytest.raises(MeasurementError, match=r"seccomp.*settings=aslr=0"):
        planned(SMALL)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(build("alias_environment"), Conditions(cpu=CPU)) as made:
        yield made


def program_that(text: str, folder: Path) -> Program:
    path = folder / "broken"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return Program(path, 10, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kill -SEGV $$", "broken with an environment of 64 bytes died of signal 11"),
        ("exit 3", "ended with exit status 3"),
        ("echo hello", "printed something else than its addresses and times: 'hello"),
    ],
)
def test_a_program_that_breaks_costs_one_trial(
    worker: Worker, tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(WorkerError, match=words):
        start(worker, program_that(text, tmp_path), 64, variables={})
    good = Program(build("alias_environment", executable=True).library, 10, 1)
    assert start(worker, good, 64, variables={}).addresses["i"] > 0


def test_a_program_that_is_not_there(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="cannot be run: No such file"):
        start(worker, Program(tmp_path / "none", 10, 1), 64, variables={})


def test_a_start_that_was_not_as_requested_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"i": 4096, "j": 4100, "k": 4104, "g": 1 << 30, "inc": (1 << 30) - 4}
    reported: dict[str, float] = {
        **at, "time_ns": 20, "least_ns": 10, "environment_bytes": 64, "cpu": CPU, "aslr": 0,
        "cpu_time_ns": 9, "run_delay_ns": 1, "throttled_ns": -1, "probe_before_ns": 4000,
        "probe_after_ns": 4000, "chain_before_ns": 1600, "chain_after_ns": 1600,
    }  # fmt: skip
    wrong: list[tuple[dict[str, float], str]] = [
        ({}, ""),
        ({"environment_bytes": 80}, "another size"),
        ({"cpu": -1}, f"not on cpu{CPU}"),
        ({"aslr": 1}, "randomised"),
        ({"i": 4112}, "not those that were predicted"),
        ({"inc": (1 << 30) + 4096}, "not those that were predicted"),
    ]
    for change, words in wrong:
        monkeypatch.setattr(
            trials, "start", lambda *_, now=change, **__: Start({**reported, **now}, 1, 2)
        )
        made = EnvironmentTrials(
            build("alias_environment"), [Conditions(cpu=CPU)], (Program(Path("x"), 1, 1), []),
            [Configuration("environment", 0, 64)], variables={}, predicted={64: ["g-i"]},
            origin=(64, at), sets=[],
        )  # fmt: skip
        with made:
            columns = made.take(0, 0)
        assert columns["ok"] == [not words]
        assert (columns["core_mhz"], columns["throttled_ns"]) == ([4000.0], [None])
        assert (words in " ".join(made.violated)) is True
        assert len(made.violated) == bool(words)


def test_lines_that_cannot_be_read() -> None:
    good = "i=1 j=2 k=3 g=4 inc=5 least_ns=6 core_mhz=1.5 sums=7,7,7"
    assert read_line(good, "it")["core_mhz"] == 1.5
    for bad in ("", "i=1", good.replace("7,7,7", "7,7,8"), good.replace("=5", "=five")):
        with pytest.raises(WorkerError, match="it printed something else"):
            read_line(bad, "it")


def test_sets_of_counters() -> None:
    def names(*given: str) -> list[str]:
        return list(sets_of(AliasEnvironmentParams.make({"sets": list(given)})))

    assert {"software", "faults"} <= set(names("all"))
    assert names("none") == []
    assert names("faults", "faults") == ["faults"]
    with pytest.raises(UserError, match="did you mean 'software'"):
        experiment.plan(AliasEnvironmentParams.make({**SMALL, "sets": ["sofware"]}))
