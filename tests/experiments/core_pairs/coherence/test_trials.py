"""Trials of coherence: who meets whom, what is measured, and what becomes of the answers."""

from __future__ import annotations

import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from perflib.experiments import get
from perflib.experiments.core_pairs.coherence import trials as coherence_trials
from perflib.experiments.core_pairs.coherence.names import (
    ACCESSES,
    ALONE,
    LAYOUT_CONTROL,
    LAYOUTS,
    PROTOCOLS,
    STATES,
    WITH_THIRD,
)
from perflib.experiments.core_pairs.coherence.plan import (
    LEVELS,
    PairConfiguration,
    configurations_of,
    control_layouts,
    tournament,
    whats_of,
)
from perflib.experiments.core_pairs.coherence.trials import SAMPLE, CoherenceTrials
from perflib.kernels import Kernel, build, load
from perflib.measure.conditions import Conditions
from perflib.measure.process import Worker, WorkerError
from perflib.measure.workers import Workers
from perflib.model.errors import MeasurementError

CPUS = sorted(os.sched_getaffinity(0))
COLUMNS = {column.name for column in get("coherence").columns}
CPU, MEMORY, LATE = 2, 4, 6
EMPTY_NS, LATENCY_NS, MHZ = 20.0, 50.0, 4000.0
PAIR = PairConfiguration(0, ((2, 5),))

real = pytest.mark.skipif(
    bool(get("coherence").unavailable()), reason=get("coherence").unavailable()
)


# --- who meets whom ------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=41, unique=True))
def test_in_a_tournament_everybody_meets_everybody_once_and_nobody_is_twice_at_a_time(
    players: list[int],
) -> None:
    rounds = list(tournament(players))
    met = [frozenset(pair) for games in rounds for pair in games]
    assert len(met) == len(set(met))
    assert set(met) == {frozenset(pair) for pair in itertools.combinations(players, 2)}
    for games in rounds:
        playing = [player for pair in games for player in pair]
        assert len(playing) == len(set(playing))
        assert len(games) == len(players) // 2, "nobody waits who need not"


@settings(max_examples=40)
@given(
    cores=st.lists(st.integers(0, 1000), min_size=2, max_size=15, unique=True),
    each=st.integers(1, 5),
    detail=st.sampled_from(LEVELS),
    at_once=st.integers(1, 8),
)
def test_configurations_are_disjoint_pairs_both_ways_and_stages_go_from_coarse_to_all(
    cores: list[int], each: int, detail: str, at_once: int
) -> None:
    groups = [cores[begin : begin + each] for begin in range(0, len(cores), each)]
    near = [group[:2] for group in groups]
    wanted = configurations_of(cores, near, detail, at_once)
    few, first = {cpu for group in near for cpu in group}, {group[0] for group in near}
    levels = {
        pair: 0 if few.issuperset(pair) else 1 if first & set(pair) else 2
        for pair in itertools.permutations(cores, 2)
    }
    finest = sorted({level for level in levels.values() if level <= LEVELS.index(detail)})
    plain = [one for one in wanted if not one.control]
    assert {one.stage for one in plain} == set(range(len(finest)))
    for stage, most in enumerate(finest):
        met = Counter(pair for one in plain if one.stage == stage for pair in one.pairs)
        assert met == Counter(pair for pair, level in levels.items() if level <= most)
    for one in plain:
        assert 1 <= len(one.pairs) <= at_once
        assert len({cpu for pair in one.pairs for cpu in pair}) == 2 * len(one.pairs)
    together = any(len(one.pairs) > 1 for one in plain)
    controls = Counter(one.control for one in wanted if one.control)
    assert controls == Counter([LAYOUT_CONTROL, *([ALONE] if together else [])])


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return load("coherence")


@real
def test_names_have_the_numbers_of_the_kernel(kernel: Kernel) -> None:
    def number(*words: str) -> int:
        found: int = getattr(kernel.lib, "_".join(["COHERENCE", *words]).upper())
        return found

    assert [number(state) for state in STATES] == list(range(number("states")))
    assert [number(name) for name in PROTOCOLS] == list(range(number("protocols")))
    assert [number("load"), number("exchange")] == [0, 1]
    assert ACCESSES == ("load", "write")
    neighbours, ascending = number("neighbours"), number("ascending")
    assert LAYOUTS[neighbours] == "neighbours shuffled"
    assert LAYOUTS[ascending] == "spread ascending"
    assert LAYOUTS[neighbours + ascending] == "neighbours ascending"
    assert [number("cpu"), number("memory"), number("late")] == [CPU, MEMORY, LATE]
    thirds = [kernel.lib.coherence_needs_third(place) == 1 for place in range(len(STATES))]
    assert [state for state, third in zip(STATES, thirds, strict=True) if third] == [*WITH_THIRD]


# --- a worker that answers at once -------------------------------------------------------------


class Simulated:
    """A worker whose kernel takes ``LATENCY_NS`` for everything, on a clock of the test's."""

    now_ns = 1_000_000

    def __init__(self, spoilt: Callable[[str, tuple[Any, ...]], Any] = lambda *_: None) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.begun: list[tuple[str, tuple[Any, ...]]] = []
        self.killed = 0
        self._spoilt = spoilt

    def begin(self, function: str, *arguments: Any) -> None:
        self.calls.append((function, arguments))
        self.begun.append((function, arguments))

    def end(self, *, timeout_s: float) -> tuple[Any, list[NDArray[Any]]]:
        assert timeout_s > 1
        function, arguments = self.begun.pop(0)
        spoilt = self._spoilt(function, arguments)
        if isinstance(spoilt, WorkerError):
            self.begun.clear()
            raise spoilt
        samples = self._samples(function, arguments)
        if spoilt is not None:
            return spoilt(samples), [samples]
        return 0, [samples]

    def kill(self) -> None:
        self.killed += 1
        self.begun.clear()

    def _samples(self, function: str, arguments: tuple[Any, ...]) -> NDArray[Any]:
        repeats = arguments[-1].count
        assert arguments[-1].dtype == SAMPLE
        made = np.zeros(repeats, dtype=SAMPLE)
        if function == "coherence_exchange":
            protocol, requester, owner, exchanges = arguments[:4]
            message = list(PROTOCOLS)[protocol] == "one_way_message"
            count, proven, third = (2 if message else 1) * exchanges, exchanges, -1
            clocks = count if message else 1
        else:
            owner, requester, third = arguments[:3]
            count = proven = arguments[6]
            clocks = 1
        for place in range(repeats):
            made[place] = (
                Simulated.now_ns, round(LATENCY_NS * count + EMPTY_NS * clocks), count, proven, 0,
                EMPTY_NS, MHZ, 0.0, (requester, owner, third), (0, 1, 0),
            )  # fmt: skip
            Simulated.now_ns += 1000
        return made


def trials_of(
    workers: Sequence[Any],
    wanted: Sequence[PairConfiguration],
    states: Sequence[str] = ("modified", "shared"),
    **more: Any,
) -> CoherenceTrials:
    given_: dict[str, Any] = {"cores": range(8), "repeats": 5, "exchanges": 100, "seed": 1} | more
    whats = whats_of(PROTOCOLS, states, ACCESSES, 48)
    return CoherenceTrials(workers, wanted, whats, control_layouts(512), **given_)


def rows(columns: Any) -> list[dict[str, Any]]:
    assert len({len(values) for values in columns.values()}) <= 1
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_a_trial_of_one_pair_has_a_row_of_each_call() -> None:
    worker = Simulated()
    trials = trials_of([worker], [PAIR])
    columns = trials.take(0, 0)
    assert set(columns) == COLUMNS - {"round", "position"}
    found = {row["what"]: row for row in rows(columns)}
    assert set(found) == {
        *PROTOCOLS, "modified load", "modified write", "shared load", "shared write",
    }  # fmt: skip
    for row in found.values():
        assert (row["owner_cpu"], row["requester_cpu"]) == (2, 5)
        assert row["latency_ns"] == pytest.approx(LATENCY_NS)
        assert row["latency_cycles"] == pytest.approx(LATENCY_NS * MHZ / 1e3)
        assert row["latency_ns"] == pytest.approx(row["mean_ns"])
        assert row["ok"] is True
        assert (row["proven"], row["samples"], row["at_once"]) == (1.0, 5, 1)
        assert row["involuntary_switches"] == 5
    assert found["one_way_message"]["count"] == 200
    assert found["cas_one_line"]["way"] == "round trip"
    assert found["modified load"]["third_cpu"] == -1
    assert found["shared load"]["third_cpu"] not in (-1, 2, 5)
    assert trials.problems == []


def test_arguments_are_the_kernels() -> None:
    worker = Simulated()
    trials_of([worker], [PAIR], ["owned_here"]).take(0, 0)
    by_function = {
        (function, *arguments[: 1 if function == "coherence_exchange" else 5]): arguments
        for function, arguments in worker.calls
    }
    exchange = by_function["coherence_exchange", 1]
    assert exchange[:5] == (1, 5, 2, 100, 5), "the requester sends first"
    transfer = by_function["coherence_transfer", 2, 5, -1, 8, 1]
    assert transfer[5:8] == (0, 48, 5)
    assert 0 <= transfer[8] < 2**63
    assert transfer[9] == exchange[5] + 0 or transfer[9] >= 1e9, "a second at least"


def test_rounds_have_orders_of_their_own_that_come_back_when_a_run_is_resumed() -> None:
    def calls_of(round_: int) -> list[Any]:
        worker = Simulated()
        trials_of([worker], [PAIR]).take(round_, 0)
        return [(function, arguments[:-1]) for function, arguments in worker.calls]

    assert calls_of(0) == calls_of(0)
    assert calls_of(0) != calls_of(1)


def test_the_row_is_the_median_sample_and_says_where_the_others_lie() -> None:
    def slow(samples: NDArray[Any]) -> int:
        samples["time_ns"] = [48020, 4820, 4920, 5020, 4720]  # of 100: 480, 48, 49, 50, 47 ns
        return 0

    trials = trials_of([Simulated(lambda *_: slow)], [PAIR], [], exchanges=100)
    row = next(row for row in rows(trials.take(0, 0)) if row["what"] == "cas_one_line")
    assert row["latency_ns"] == pytest.approx(49)
    assert row["time_ns"] == 4920
    assert (row["quarter_ns"], row["three_quarters_ns"]) == pytest.approx((48, 50))
    assert row["mean_ns"] == pytest.approx((480 + 48 + 49 + 50 + 47) / 5)


# --- several pairs at the same time --------------------------------------------------------------


def test_pairs_of_a_batch_are_all_begun_before_one_is_waited_for() -> None:
    log: list[str] = []

    class Logged(Simulated):
        def begin(self, function: str, *arguments: Any) -> None:
            log.append("begin")
            super().begin(function, *arguments)

        def end(self, *, timeout_s: float) -> tuple[Any, list[NDArray[Any]]]:
            log.append("end")
            return super().end(timeout_s=timeout_s)

    pairs = ((0, 1), (2, 3), (4, 5))
    trials = trials_of([Logged() for _ in pairs], [PairConfiguration(0, pairs)], ["modified"])
    found = rows(trials.take(0, 0))
    assert log == ["begin"] * 15 + ["end"] * 15
    assert Counter((row["owner_cpu"], row["requester_cpu"]) for row in found) == dict.fromkeys(
        pairs, 5
    )


@settings(max_examples=40)
@given(
    cores=st.lists(st.integers(0, 99), min_size=4, max_size=13, unique=True), seed=st.integers(0, 9)
)
def test_a_third_reader_is_never_a_core_of_a_pair_that_is_measured(
    cores: list[int], seed: int
) -> None:
    phases: list[list[int]] = [[]]

    class Watched(Simulated):
        """Notes whose cores are in use from a first beginning to the first end."""

        def begin(self, function: str, *arguments: Any) -> None:
            if not self.begun and function == "coherence_transfer":
                phases[-1] += arguments[:3]
            super().begin(function, *arguments)

        def end(self, *, timeout_s: float) -> tuple[Any, list[NDArray[Any]]]:
            if phases[-1]:
                phases.append([])
            return super().end(timeout_s=timeout_s)

    pairs = next(iter(tournament(cores)))
    workers = [Watched() for _ in pairs]
    trials = trials_of(
        workers, [PairConfiguration(0, tuple(pairs))], WITH_THIRD, cores=cores, seed=seed
    )
    found = [row for row in rows(trials.take(0, 0)) if row["state"]]
    assert Counter((row["owner_cpu"], row["requester_cpu"]) for row in found) == dict.fromkeys(
        pairs, 2 * len(WITH_THIRD)
    )
    assert [len(busy) for busy in phases] == [
        3 * ((len(pairs) + 1) // 2), 3 * (len(pairs) // 2), 0,
    ]  # fmt: skip
    for busy in phases:
        assert len(busy) == len(set(busy)), "a core has two things to do"
        assert set(busy) <= set(cores)


def test_how_many_were_measured_at_the_same_time_is_counted_not_assumed() -> None:
    class Clocked(Simulated):
        """Its samples all lie in one interval of time."""

        def __init__(self, begin_ns: int) -> None:
            super().__init__(lambda *_: self._at)
            self._begin_ns = begin_ns

        def _at(self, samples: NDArray[Any]) -> int:
            samples["begin_ns"] = self._begin_ns + 1000 * np.arange(len(samples))
            return 0

    workers = [Clocked(10_000), Clocked(12_000), Clocked(90_000)]
    trials = trials_of(workers, [PairConfiguration(0, ((0, 1), (2, 3), (4, 5)))], [])
    found = {row["owner_cpu"]: row["at_once"] for row in rows(trials.take(0, 0))}
    assert found == {0: 2, 2: 2, 4: 1}


def test_some_pairs_of_each_round_are_measured_alone_too() -> None:
    wanted = configurations_of(range(12), [[0, 1]], "pairs", 6)
    workers = [Simulated() for _ in range(6)]
    trials = trials_of(workers, wanted, [])
    (alone,) = (place for place, one in enumerate(wanted) if one.control == ALONE)
    chosen = []
    for round_ in (2, 3):
        found = rows(trials.take(round_, alone))
        assert {row["control"] for row in found} == {ALONE}
        assert {row["at_once"] for row in found} == {1}
        chosen.append({(row["owner_cpu"], row["requester_cpu"]) for row in found})
        assert len(chosen[-1]) == 4
    assert chosen[0] != chosen[1]
    assert trials.take(0, alone) == {}, "in the first round all are alone anyway"


# --- rounds and controls -------------------------------------------------------------------------


def test_stages_have_their_rounds_the_last_one_stays_and_controls_are_always_there() -> None:
    wanted = [
        PairConfiguration(0, ((0, 1),)),
        PairConfiguration(1, ((0, 1),)),
        PairConfiguration(0, ((0, 1),), LAYOUT_CONTROL),
    ]
    trials = trials_of([Simulated()], wanted, [])
    taken = [[bool(trials.take(round_, one)) for one in range(3)] for round_ in range(3)]
    assert taken == [[True, False, True], [False, True, True], [False, True, True]]


def test_the_layouts_control_takes_the_same_lines_in_four_layouts() -> None:
    worker = Simulated()
    trials = trials_of([worker], [PairConfiguration(0, ((0, 1),), LAYOUT_CONTROL)])
    found = rows(trials.take(0, 0))
    assert {row["layout"] for row in found} == set(LAYOUTS)
    assert {row["lines"] for row in found} == {512}
    assert {row["control"] for row in found} == {LAYOUT_CONTROL}
    assert {row["state"] for row in found} == {"modified"}
    assert sorted(arguments[5] for _, arguments in worker.calls) == [0, 1, 2, 3]


# --- what can go wrong ---------------------------------------------------------------------------


def failing(stage: int, number: int, keep: int = 0) -> Callable[[NDArray[Any]], int]:
    def answer(samples: NDArray[Any]) -> int:
        samples[keep:] = np.zeros((), dtype=SAMPLE)
        return stage * 65536 + number

    return answer


def only(function: str, answer: Any) -> Callable[[str, tuple[Any, ...]], Any]:
    return lambda name, _: answer if name == function else None


def test_a_core_that_is_gone_costs_its_rows_and_is_reported_once() -> None:
    spoilt = failing(CPU, errno.EINVAL)
    trials = trials_of([Simulated(lambda *_: spoilt)], [PAIR])
    for round_ in range(2):
        found = rows(trials.take(round_, 0))
        assert len(found) == 7
        assert not any(row["ok"] for row in found)
        assert all(np.isnan(row["latency_ns"]) for row in found)
        assert all(row["samples"] == 0 for row in found)
    two = [text for text in trials.problems if text.startswith("cpu2 to cpu5: a core cannot be")]
    assert len(two) == 1
    assert "offline" in two[0]


def test_what_is_late_is_not_used_and_not_waited_for_again() -> None:
    worker = Simulated(only("coherence_exchange", failing(LATE, errno.ETIMEDOUT, keep=2)))
    trials = trials_of([worker], [PAIR], [])
    found = rows(trials.take(0, 0))
    assert len(found) == 1, "the others would be as late"
    assert worker.killed == 1
    assert found[0]["ok"] is False
    assert found[0]["samples"] == 2, "what there was is kept"
    assert found[0]["latency_ns"] == pytest.approx(LATENCY_NS)
    assert trials.problems == [
        "cpu2 to cpu5: not done within 2 s: another program kept one of the cores"
    ]


def test_no_memory_is_reported() -> None:
    spoilt = failing(MEMORY, errno.ENOMEM)
    trials = trials_of([Simulated(lambda *_: spoilt)], [PAIR], [])
    assert not any(trials.take(0, 0)["ok"])
    assert "no memory or no thread available: Cannot allocate memory" in trials.problems[0]


def test_wrong_arguments_are_an_error_and_leave_no_answer_behind() -> None:
    worker = Simulated(lambda *_: failing(1, errno.EINVAL))
    with pytest.raises(MeasurementError, match="coherence refused its arguments"):
        trials_of([worker], [PAIR]).take(0, 0)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("proven", 47, "not every line, or exchange, was what it should be"),
        ("cpus", -1, "a thread migrated from its core"),
    ],
)
def test_one_sample_that_is_not_as_it_should_be_spoils_its_row(
    column: str, value: int, words: str
) -> None:
    def spoil(samples: NDArray[Any]) -> int:
        samples[column][3] = value
        return 0

    trials = trials_of([Simulated(only("coherence_transfer", spoil))], [PAIR], ["modified"])
    found = {row["what"]: row["ok"] for row in rows(trials.take(0, 0))}
    assert found == dict.fromkeys(PROTOCOLS, True) | {
        "modified load": False, "modified write": False,
    }  # fmt: skip
    assert trials.problems == [f"cpu2 to cpu5: {words}"]


def test_a_latency_below_the_clocks_own_is_not_used() -> None:
    def short(samples: NDArray[Any]) -> int:
        samples["time_ns"] = 10
        return 0

    trials = trials_of([Simulated(lambda *_: short)], [PAIR], ["local"])
    assert not any(trials.take(0, 0)["ok"])


def test_a_worker_that_dies_costs_its_pair_and_not_the_others() -> None:
    dead = Simulated(lambda *_: WorkerError("worker ended by signal SIGKILL"))
    trials = trials_of([Simulated(), dead], [PairConfiguration(0, ((0, 1), (2, 3)))], [])
    found = rows(trials.take(0, 0))
    assert {row["owner_cpu"] for row in found} == {0}
    assert len(found) == 3
    assert trials.problems == ["worker ended by signal SIGKILL"]


def test_if_all_workers_die_the_turn_is_lost() -> None:
    dead = Simulated(lambda *_: WorkerError("worker ended by signal SIGKILL"))
    with pytest.raises(WorkerError, match="SIGKILL"):
        trials_of([dead], [PairConfiguration(0, ((0, 1),))]).take(0, 0)


def test_interrupted_turns_leave_no_answer_for_the_next() -> None:
    class Interrupted(Simulated):
        def end(self, *, timeout_s: float) -> tuple[Any, list[NDArray[Any]]]:
            del timeout_s
            raise KeyboardInterrupt

    workers = [Interrupted(), Interrupted()]
    with pytest.raises(KeyboardInterrupt):
        trials_of(workers, [PairConfiguration(0, ((0, 1), (2, 3)))]).take(0, 0)
    assert [worker.killed for worker in workers] == [1, 1]


# --- for real ------------------------------------------------------------------------------------


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Worker]]:
    """With time enough, whatever else runs on the two cores."""
    monkeypatch.setattr(coherence_trials, "_AT_LEAST_S", 100.0)
    with Workers(build("coherence"), [Conditions()] * 2) as made:
        yield [made[0], made[1]]


@real
def test_a_trial_for_real(workers: list[Worker]) -> None:
    pair = CPUS[0], CPUS[1]
    states = [state for state in STATES if state not in WITH_THIRD]
    wanted = [PairConfiguration(0, (pair,)), PairConfiguration(0, (pair,), LAYOUT_CONTROL)]
    trials = trials_of(workers, wanted, states, cores=CPUS, repeats=2, exchanges=10)
    found = rows(trials.take(0, 0)) + rows(trials.take(0, 1))
    assert trials.problems == []
    assert len(found) == 3 + 2 * len(states) + 4
    for row in found:
        assert (row["owner_cpu"], row["requester_cpu"]) == pair
        assert row["ok"] is True
        assert row["latency_ns"] > 0
        assert row["proven"] == 1
        assert row["samples"] == 2
