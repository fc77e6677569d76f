"""The event loop's versions, its command, and what is read of its account."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from perflib.framework.published import published
from perflib.measure.jobs.event_loop import POINTS, VERSIONS, Account, argv
from perflib.model.errors import MeasurementError, UserError


def whole() -> dict[str, Any]:
    """An account as the job prints it, of two locks and one thread."""
    lock = {
        "name": "formula_lock", "point": "formula", "address": 4096, "taken": 9, "waits": 2,
        "waiting_ns": 3_000_000, "longest_ns": 2_000_000, "held_ns": 5_000_000, "spinning_ns": 7,
    }  # fmt: skip
    other = lock | {"name": "task_queue", "point": "queue", "waiting_ns": 4_000_000}
    thread = {"tid": 11, "name": "event-0", "events": 3, "cpu_ns": 8, "waiting_ns": 7_000_000}
    return {
        "threads": 1, "events": 3, "points": ["formula", "queue"], "pid": 10, "begin_ns": 10**9,
        "end_ns": 3 * 10**9, "checksum": "00ff", "locks": [lock, other], "per_thread": [thread],
    }  # fmt: skip


def test_versions_are_the_published_ones_each_with_fewer_points() -> None:
    assert list(VERSIONS) == published("vtune_calibration")["version"].to_list()
    kept = [set(points) for points in VERSIONS.values()]
    assert kept[0] == set(POINTS)
    assert all(after < before for before, after in itertools.pairwise(kept))
    assert kept[-1] == {"output"}


# --- the command -------------------------------------------------------------------------------


def test_command_has_what_was_asked_for() -> None:
    words = argv(
        3, 40, {"queue", "formula"}, first=5, seed=6, spin=7, lock="robust",
        sizes={"jets": 2, "queue": 8, "merge": 9},
    )  # fmt: skip
    assert words[0].endswith("event_loop")
    assert dict(zip(words[1::2], words[2::2], strict=True)) == {
        "--threads": "3", "--events": "40", "--points": "formula,queue", "--first": "5",
        "--seed": "6", "--spin": "7", "--lock": "robust", "--jets": "2", "--queue-work": "8",
        "--merge-work": "9",
    }  # fmt: skip
    assert argv(1, points=())[argv(1).index("--points") + 1] == "none"
    assert "--events" not in argv(1)


def test_wrong_words_get_the_nearest_right_ones() -> None:
    with pytest.raises(UserError, match="point of the event loop 'formla': did you mean 'form"):
        argv(1, points=["formla"])
    with pytest.raises(UserError, match="kind of lock 'rwlock'"):
        argv(1, lock="rwlock")
    with pytest.raises(UserError, match="size of the event loop 'jet': did you mean 'jets'"):
        argv(1, sizes={"jet": 1})


# --- the account -------------------------------------------------------------------------------


def test_account_is_the_last_line() -> None:
    account = Account.parse(f"a word before\n{json.dumps(whole())}\n\n")
    assert account.points == ("formula", "queue")
    assert account.duration_s == pytest.approx(2.0)
    assert [(lock.name, lock.taken) for lock in account.locks] == [
        ("formula_lock", 9), ("task_queue", 9),
    ]  # fmt: skip
    assert account.per_thread[0].name == "event-0"
    assert list(account.waiting_s()) == ["task_queue", "formula_lock"]
    assert account.waiting_s()["formula_lock"] == pytest.approx(3e-3)


@pytest.mark.parametrize("text", ["", "\n\n", "Segmentation fault", "[1]", "null"])
def test_no_account(text: str) -> None:
    with pytest.raises(MeasurementError, match="printed no account: it did not come to its end"):
        Account.parse(text)


@pytest.mark.parametrize("length", [1, 20, 200, -1])
def test_account_that_was_cut(length: int) -> None:
    with pytest.raises(MeasurementError, match="account is not whole"):
        Account.parse(json.dumps(whole())[:length])


@pytest.mark.parametrize("key", sorted(whole()))
def test_account_without_a_key(key: str) -> None:
    found = whole()
    del found[key]
    with pytest.raises(MeasurementError, match=rf"not whole: account\.{key}: Field required"):
        Account.parse(json.dumps(found))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["events"], "3", r"account\.events: .* valid integer"),
        (["events"], True, r"account\.events: .* valid integer"),
        (["locks", 1], "task_queue", r"account\.locks\.1: "),
        (["locks", 1, "waiting_ns"], 1.5, r"account\.locks\.1\.waiting_ns: .* valid integer"),
        (["points"], [3], r"account\.points\.0: .* valid string"),
    ],
)
def test_account_with_something_else_in_it(path: list[Any], value: Any, said: str) -> None:
    found = whole()
    inside: Any = found
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    with pytest.raises(MeasurementError, match=said):
        Account.parse(json.dumps(found))
