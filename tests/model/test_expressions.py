"""A user's regular expressions: what they find, and that no place that takes one hangs."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.experiments import get
from perflib.instruments.joblog.joblog import parse
from perflib.instruments.joblog.logformat import LogFormat
from perflib.instruments.threads.formats import EVENT
from perflib.instruments.threads.recording import Recording
from perflib.instruments.threads.settings import SPIN_FUNCTIONS, Settings
from perflib.instruments.threads.states import StateMachine
from perflib.lab.threads.page import found
from perflib.model import expressions
from perflib.model.errors import UserError
from perflib.model.expressions import Expression

SLOW = "(a|aa)+$"
LONG = "a" * 60 + "b"


@given(st.text("ab_ .", max_size=30))
def test_it_finds_what_re_finds(text: str) -> None:
    for expression in ("a", "^a|b$", r"(?P<word>\w+) \.", SPIN_FUNCTIONS, r"(?<!a)b", r"(a)\1"):
        mine, theirs = Expression(expression, "it").search(text), re.search(expression, text)
        assert (mine and mine.span()) == (theirs and theirs.span())


@pytest.mark.parametrize(
    "expression",
    [
        "a{1000000000}", "(ab){10000000}", "(a{1000}){10000}", "(?:ab{100}c){100000}",
        "((((a{99}){99}){99}){99})", "a{" + "9" * 5000 + "}", "[a-z]{1000000}", r"\d{1,200000}",
    ],
)  # fmt: skip
def test_what_would_fill_the_memory_is_refused(expression: str) -> None:
    with pytest.raises(UserError, match="written out, are more than 100000 parts"):
        Expression(expression, "threads")


@pytest.mark.parametrize(
    "expression",
    ["(", "(" * 500 + "a" + ")" * 500, "[", "*", "(?P<a>x)(?P=b)", "a{2}{3}{4}", r"\p{Nothing}"],
)
def test_what_is_none_is_refused(expression: str) -> None:
    with pytest.raises(UserError, match="threads is no regular expression") as caught:
        Expression(expression, "threads")
    assert len(str(caught.value)) < 500


# --- none hangs -----------------------------------------------------------------------------------


def test_a_search_ends_and_says_why() -> None:
    with pytest.raises(UserError) as caught:
        Expression(SLOW, "threads").search(LONG)
    assert str(caught.value).startswith(
        "threads: the regular expression '(a|aa)+$' took longer than 1 s on 'aaaa"
    )
    assert "simplify it (repeats within repeats, such as (a+)+" in str(caught.value)


def test_many_searches_that_are_all_a_little_slow_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_MAX_TEXTS_S", 0.2)
    slow = Expression(SLOW, "threads")
    with pytest.raises(UserError, match=r"took longer than 0\.2 s on \d+ texts, the last 'aaaa"):
        slow.finds("a" * 22 + "b" for _ in range(10**9))


def _keeps() -> None:
    Settings(threads=SLOW).keeps(["fine", LONG])


def _spins() -> None:
    machine = StateMachine(start_ns=0, stacks=["main;fine", f"main;{LONG}"], spin_functions=SLOW)
    machine.feed(np.empty(0, EVENT))


def _page() -> None:
    recording = object.__new__(Recording)
    recording.__dict__["threads"] = pd.DataFrame({"name": ["fine", LONG]})
    found(recording, SLOW, [0, 1])


def _log(which: str) -> Callable[[], None]:
    def read() -> None:
        both = {"begin": "begin (?P<event>x)", "end": "end"}
        both[which] = f"{SLOW}|(?P<event>c)" if which == "begin" else SLOW
        list(parse([(0, f"{LONG}\n".encode())], LogFormat(**both), []))

    return read


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(_keeps, id="keeps"),
        pytest.param(_spins, id="spins"),
        pytest.param(_page, id="page"),
        pytest.param(_log("begin"), id="begin"),
        pytest.param(_log("end"), id="end"),
    ],
)
def test_no_place_that_takes_an_expression_hangs(
    use: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "_MAX_TEXT_S", 0.1)
    with pytest.raises(UserError, match=r"took longer than 0\.1 s on 'aaaa"):
        use()


@pytest.mark.parametrize(
    ("experiment", "parameter"),
    [("threads", "keep_threads"), ("kv_per_core", "job_begin"), ("event_profile", "job_end"),
     ("counters", "job_begin")],
)  # fmt: skip
def test_parameters_refuse_what_would_fill_the_memory(experiment: str, parameter: str) -> None:
    with pytest.raises(UserError, match="written out, are more than 100000 parts"):
        get(experiment).params({parameter: "(?P<event>a{1000000000})"})
