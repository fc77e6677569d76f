from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflib.instruments.profile.views import (
    bottom_up,
    callees,
    callers,
    flat,
    merge_copies,
    select,
    top_down,
)
from perflib.model.errors import UserError
from tests.instruments.profile.tables import sample, samples_of, table

STACKS = {"main;f;g": 5, "main;g": 3, "main;f;g;f": 1, "main": 1}

any_stacks = st.dictionaries(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(";".join),
    st.integers(1, 5),
    min_size=1,
    max_size=12,
)


def rows(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


# --- flat profile --------------------------------------------------------------------------------


def test_flat_counts_self_and_total_with_recursion_once() -> None:
    shown = flat(samples_of(STACKS))
    assert list(shown.columns) == [
        "function", "object", "self_samples", "self_percent", "total_samples", "total_percent",
    ]  # fmt: skip
    assert rows(shown, "function", "self_samples", "self_percent", "total_samples") == [
        ("g", 8, 80.0, 9),
        ("main", 1, 10.0, 10),
        ("f", 1, 10.0, 6),
    ]
    assert list(shown["total_percent"]) == [90.0, 100.0, 60.0]


@given(any_stacks)
@settings(max_examples=50)
def test_flat_agrees_with_counting_sample_by_sample(stacks: dict[str, int]) -> None:
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for stack, count in stacks.items():
        frames = stack.split(";")
        own[frames[-1]] += count
        total.update(dict.fromkeys(frames, count))
    shown = flat(samples_of(stacks)).set_index("function")
    assert shown["self_samples"].to_dict() == {name: own[name] for name in total}
    assert shown["total_samples"].to_dict() == dict(total)
    assert shown["self_percent"].sum() == pytest.approx(100)
    assert shown["self_samples"].is_monotonic_decreasing


# --- trees ---------------------------------------------------------------------------------------


@given(any_stacks)
@settings(max_examples=50)
def test_every_node_is_its_self_and_its_children(stacks: dict[str, int]) -> None:
    made = samples_of(stacks)
    for tree in (top_down(made), bottom_up(made)):
        assert tree.total == sum(stacks.values())
        for _, node in tree.walk():
            assert node.total == node.self + sum(child.total for child in node.below.values())
    self_samples = dict(rows(flat(made), "function", "self_samples"))
    for function, node in bottom_up(made).below.items():
        assert node.total == self_samples[function]


def test_the_text_of_a_tree_is_indented_cut_and_says_what_it_left_out() -> None:
    assert top_down(samples_of(STACKS)).text(20).splitlines() == [
        " total    self  function",
        "100.0 %   0.0 %  all",
        "100.0 %  10.0 %    main",
        " 60.0 %   0.0 %      f",
        " 60.0 %  50.0 %        g",
        " 30.0 %  30.0 %      g",
        "(1 node of less than 20 % left out)",
    ]


# --- callers and callees -------------------------------------------------------------------------


def test_callers_and_callees_share_out_the_functions_samples() -> None:
    made = samples_of({"main;f": 1, "main;f;g": 2, "h;f;f;k": 4, "f": 3, "main;k": 6})
    shown = callers(made, "f")
    assert rows(shown, "caller", "samples", "percent", "percent_of_all") == [
        ("h", 4, 40.0, 25.0),
        ("[no caller]", 3, 30.0, 18.75),
        ("main", 3, 30.0, 18.75),
    ]
    shown = callees(made, "f")
    assert rows(shown, "callee", "samples", "percent") == [
        ("[itself]", 4, 40.0),
        ("k", 4, 40.0),
        ("g", 2, 20.0),
    ]


@given(any_stacks, st.sampled_from("abcd"))
@settings(max_examples=50)
def test_shares_add_up_whatever_the_recursion(stacks: dict[str, int], function: str) -> None:
    made = samples_of(stacks)
    total = dict(rows(flat(made), "function", "total_samples")).get(function)
    for view in (callers, callees):
        if total is None:
            with pytest.raises(UserError, match=f"unknown function '{function}'"):
                view(made, function)
        else:
            found = view(made, function)
            assert found["samples"].sum() == total
            assert found["percent"].sum() == pytest.approx(100)


def test_an_unknown_function_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'kv_scatter'"):
        callers(samples_of({"main;kv_scatter": 1}), "kv_scater")


# --- choosing ------------------------------------------------------------------------------------


@pytest.fixture
def mixed() -> pd.DataFrame:
    return table(
        [
            sample("a", event="cycles", tid=1, comm="job", cpu=0, time_ns=10, period=-1),
            sample("b", event="cycles", tid=2, comm="io thread", cpu=1, time_ns=20),
            sample("c", event="cpu-clock", tid=2, comm="io thread", cpu=0, time_ns=30),
        ]
    )


def test_samples_are_chosen_by_event_thread_cpu_and_time(mixed: pd.DataFrame) -> None:
    def chosen(**asked: object) -> str:
        return "".join(select(mixed, **asked)["symbol"])  # type: ignore[arg-type]

    assert chosen() == "abc"
    assert chosen(event="cycles") == "ab"
    assert chosen(thread=2) == "bc"
    assert chosen(thread="job") == "a"
    assert chosen(cpu=0) == "ac"
    assert chosen(start_ns=20) == "bc"
    assert chosen(end_ns=20) == "a"
    assert chosen(event="cycles", thread=2, start_ns=20, end_ns=21) == "b"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"event": "cycle"}, "did you mean 'cycles'"),
        ({"thread": 3}, r"unknown thread '3' .*1, 2"),
        ({"thread": "io tread"}, "did you mean 'io thread'"),
        ({"cpu": 7}, "unknown CPU '7'"),
        ({"start_ns": 99}, "no sample is left of 3 with start_ns 99: the profile goes from 10 to"),
        ({"event": "cpu-clock", "thread": 1}, "no sample is left .* event cpu-clock, thread 1"),
    ],
)
def test_a_choice_that_leaves_nothing_says_what_there_is(
    mixed: pd.DataFrame, asked: dict[str, object], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        select(mixed, **asked)  # type: ignore[arg-type]


def test_periods_that_are_missing_or_of_two_units_are_not_added_up(mixed: pd.DataFrame) -> None:
    with pytest.raises(UserError, match="1 of 3 samples have no period"):
        flat(mixed, "period")
    with pytest.raises(UserError, match="choose one of cycles, cpu-clock"):
        flat(mixed[1:], "period")
    with pytest.raises(UserError, match="unknown weight 'periods'"):
        flat(mixed, "periods")  # type: ignore[arg-type]


# --- copies --------------------------------------------------------------------------------------


def test_copies_of_a_function_become_one() -> None:
    made = table(
        [
            sample("main;kv_step_0003;kv_scatter_0042", offset=7),
            sample("main;kv_step_0004;kv_scatter_0001", offset=7),
            sample("main;kv_step_12345"),
            sample("main;pass_12;year_123"),
        ]
    )
    merged = merge_copies(made)
    assert list(merged["symbol"]) == ["kv_scatter", "kv_scatter", "kv_step", "year_123"]
    assert list(merged["stack"])[:3] == [*["main;kv_step;kv_scatter"] * 2, "main;kv_step"]
    assert merged["stack"].iloc[3] == "main;pass_12;year_123"
    assert merged["stack"].dtype == "category"
    assert list(merged["offset"]) == list(made["offset"])
    assert made["symbol"].iloc[0] == "kv_scatter_0042"  # the table that was given is as it was
    assert rows(flat(merged), "function", "self_samples")[0] == ("kv_scatter", 2)
