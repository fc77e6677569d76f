from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflib.machine.cpulist import format_cpus, parse_cpus
from perflib.model.errors import UserError


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("0-", "'0-'"),
        ("a", "'a'"),
        ("0,,2", "''"),
        ("-1", "'-1'"),
        ("3-1", "backwards"),
        ("0-99999999", "no machine"),
    ],
)
def test_what_is_no_list_is_refused_by_name(words: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        parse_cpus(words)


@given(st.sets(st.integers(0, 300)))
def test_writing_and_reading_return_the_same(cpus: set[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == sorted(cpus)
