"""What a record may not be: its sentence names the place, what is there, and what should be."""

from __future__ import annotations

from typing import Any

import pytest

from perflib.model.errors import UserError
from perflib.store.shape import check_record

GOOD: dict[str, Any] = {
    "id": "kv-1",
    "experiment": "kv",
    "params": {},
    "provenance": {},
    "schema": 1,
}
CPU = {"cpu": 0, "core": 0, "package": 0, "die": 0, "node": 0, "where": "socket 0"}


def nested(levels: int) -> Any:
    record: Any = 1
    for _ in range(levels):
        record = [record]
    return record


def test_entries_may_be_missing_and_more_may_be_there() -> None:
    check_record(GOOD, "it")
    machine = {"cpus": [CPU], "of_a_later_version": {}}
    check_record({**GOOD, "provenance": {"machine": machine, "versions": {"v": nested(60)}}}, "it")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"experiment": 3}, "experiment is 3: input should be a valid string"),
        ({"params": {"job_log": [1]}}, "params.job_log is [1]: input should be a valid string"),
        (
            {"provenance": {"machine": {"cpus": [{**CPU, "cpu": -1}]}}},
            "provenance.machine.cpus.0.cpu is -1: input should be greater than or equal to 0",
        ),
        ({"provenance": {"machine": {"cpus": [{}]}}}, "cpus.0.cpu is missing (and 5 more)"),
        ({"params": "x" * 99}, f"params is '{'x' * 59}...: input should be"),
        ({"provenance": {"versions": nested(70)}}, "levels deep: perflib wrote no such run"),
    ],
)
def test_what_no_perflib_writes_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=r"^it ") as error:
        check_record({**GOOD, **changed}, "it")
    assert message in str(error.value)


@pytest.mark.parametrize("missing", GOOD)
def test_what_every_run_has_is_demanded(missing: str) -> None:
    with pytest.raises(UserError, match=f"perflib saves it: {missing} is missing$"):
        check_record({name: value for name, value in GOOD.items() if name != missing}, "it")
