"""The schema of an experiment: what it refuses, in which words, and what it lets pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib.framework.schema import Column, check_cells, checked, too_few_values
from perflib.model.errors import UserError

COLUMNS = (
    Column("ratio", "number", "", "of two"),
    Column("round", "integer", "", "number of the round", True, "key"),
    Column("cpu", "integer", "", "the core", True, "key", least=-1),
    Column("time_ns", "number", "ns", "of the sample", True, "measured"),
    Column("delay_ns", "number", "ns", "waited"),
    Column("state", "text", "", "which", values=("new", "again")),
    Column("name", "text", "", "any"),
    Column("shares", "json", "", "by thread", holds=list[float]),
    Column("ok", "boolean", "", "whether it is used"),
)
ROWS = 40


def table(**changed: Any) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    made = {
        "round": np.arange(ROWS) // 2,
        "cpu": np.arange(ROWS) % 2,
        "time_ns": generator.lognormal(5, 0.1, ROWS),
    }
    return pd.DataFrame({**made, **changed})


def one(value: Any, others: Any) -> list[Any]:
    """A column whose third row holds something else."""
    return [others, others, value, *[others] * (ROWS - 3)]


def check(samples: pd.DataFrame, renamed: dict[str, str] | None = None) -> pd.DataFrame:
    return checked(samples, COLUMNS, "tiny", renamed or {})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"time_ns": one(np.inf, 1.0)}, "'time_ns' holds inf ns in row 3, which is not finite"),
        ({"time_ns": one(-np.inf, 1.0)}, "'time_ns' holds -inf ns in row 3, which is not finite"),
        ({"time_ns": one(1e300, 1.0)}, r"'time_ns' holds 1e\+300 ns in row 3, and it takes 1e-06"),
        ({"time_ns": one(0.0, 1.0)}, "'time_ns' holds 0.0 ns in row 3, and it takes 1e-06 to"),
        ({"time_ns": one(None, 1.0)}, "'time_ns' has no value in row 3"),
        ({"time_ns": "soon"}, "'time_ns' holds no numbers, but 'soon'"),
        ({"time_ns": one(1j, 1.0)}, "'time_ns' holds no numbers"),
        ({"ratio": one(5e-324, 1.0)}, "'ratio' holds 5e-324 in row 3, which is too small"),
        ({"delay_ns": one(1e-300, 1.0)}, "'delay_ns' holds 1e-300 ns in row 3, which is too small"),
        ({"round": one(0.5, 1)}, "'round' holds 0.5 in row 3, and it takes whole numbers"),
        ({"round": one(2.0**70, 1)}, "'round' holds 1.18.*e.21 in row 3, and it takes 0 to"),
        ({"round": one(2**70, 1)}, "'round' holds 1.18"),
        ({"cpu": one(-2, 1)}, "'cpu' holds -2 in row 3, and it takes -1 to"),
        ({"state": one("nwe", "new")}, "in row 3: unknown state 'nwe': did you mean 'new'"),
        ({"name": one(7, "x")}, "'name' holds 7 in row 3, and it takes texts"),
        ({"name": one(b"\xff", "x")}, r"'name' holds b'\\xff' in row 3, and it takes texts"),
        ({"shares": one("[1, ", "[]")}, "'shares' is not what it takes in row 3: Invalid JSON"),
        ({"shares": one('["x"]', "[]")}, "'shares' is not what it takes in row 3: 0 Input should"),
        ({"ok": one("yes", True)}, "'ok' holds 'yes' in row 3, and it takes true or false"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_with_its_row(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check(table(**changed))


def test_rows_that_are_not_used_may_hold_anything() -> None:
    wrong = table(time_ns=one(np.inf, 1.5), cpu=one(np.nan, 1), ok=one(False, True))
    assert len(check(wrong)) == ROWS


def test_integers_whose_sum_would_overflow_become_floats() -> None:
    """As counts of 2**63 - 1, whose rate was negative; an address stays as it is."""
    small, large = 2**40, 2**59
    assert check(table(delay_ns=small))["delay_ns"].dtype == np.int64
    found = check(table(delay_ns=large))["delay_ns"]
    assert found.sum() == float(large) * ROWS
    missing = check(table(delay_ns=pd.Series(one(None, large), dtype="Int64")))["delay_ns"]
    assert missing.sum() == float(large) * (ROWS - 1)
    address = Column("ip", "integer", "", "", least=-(2**63), most=2**63)
    assert checked(table(ip=2**62 + 1), [address], "tiny", {})["ip"].iloc[0] == 2**62 + 1


def test_names_are_texts_however_a_table_holds_them() -> None:
    names = ["x", "y"] * (ROWS // 2)
    found = check(table(name=pd.Series(names, dtype="category")))["name"]
    assert (found + "!").tolist() == [f"{name}!" for name in names]
    assert check(table(name=1))["name"].tolist() == ["1"] * ROWS  # as a CSV file is read


def test_names_of_earlier_runs_are_renamed() -> None:
    old = table().rename(columns={"time_ns": "duration"})
    assert "time_ns" in check(old, {"duration": "time_ns"})


def test_missing_columns_and_rows() -> None:
    with pytest.raises(UserError, match=r"'time_ns' \(is it their 'tim_ns'\?\); tiny"):
        check(table().rename(columns={"time_ns": "tim_ns"}))
    with pytest.raises(UserError, match="the samples have no rows"):
        check(table().iloc[:0])
    twice = pd.concat([table(), table()[["cpu"]]], axis=1)
    with pytest.raises(UserError, match="the column 'cpu' twice"):
        check(twice)


def test_what_is_known_of_no_sample_is_absent() -> None:
    assert "delay_ns" not in check(table(delay_ns=[None] * ROWS))


def test_a_key_that_numbers_its_rows_makes_no_huge_array() -> None:
    rows = 2000
    numbered = pd.DataFrame({"round": range(rows), "cpu": range(rows), "time_ns": 1.5})
    with pytest.raises(UserError, match=r"2000 rounds by 2000 configurations are 4e.06 cells"):
        check(numbered)
    numbered = numbered.assign(round=np.arange(rows) % 2)
    with pytest.raises(UserError, match=r"2000 configurations \(cpu\): hardly any"):
        check(numbered)
    assert len(check(numbered.assign(round=0))) == rows  # one round has each once
    again = numbered.assign(round=1)[:10]
    assert len(check(pd.concat([numbered.assign(round=0), again]))) == rows + 10
    check_cells({"rounds": 1000, "cores": 100}, 1)
    with pytest.raises(UserError, match=r"1000 rounds by 200 cores are 2e.05 cells, and only 9"):
        check_cells({"rounds": 1000, "cores": 200}, 9)


@pytest.mark.parametrize(("values", "enough"), [(1, False), (4, False), (5, True)])
def test_few_values_are_no_evidence(values: int, *, enough: bool) -> None:
    found = too_few_values(table(time_ns=np.arange(ROWS) % values + 1.0), COLUMNS)
    assert (found is None) is enough
    if found is not None:
        assert found.numbers == {"column": "time_ns", "values": values}
