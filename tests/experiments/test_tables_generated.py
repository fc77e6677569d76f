"""Whatever table is given, an analysis ends with findings or with a sentence, and no warning."""

from __future__ import annotations

import dataclasses
import itertools
import math
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from perflib import experiments
from perflib.framework.schema import Column
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from tests.hostile_tables import HOSTILE, Tables, absent, at_bounds, golden, hostile, types
from tests.slow import mostly_slow

_LONGEST_S = 60.0  # of CPU time: no limit of speed, but a guard against an analysis without an end
_OF_EACH_KIND, _MANY = 1, 4  # in the short form, and in the long one
_QUICK = ("machine", "numa", "layout")


def columns_of(name: str) -> dict[str, Column]:
    return {column.name: column for column in experiments.get(name).columns}


@contextmanager
def ending(what: str) -> Iterator[None]:
    def too_long(*_: object) -> None:
        pytest.fail(f"{what}: not ended after {_LONGEST_S} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def analysed(name: str, table: pd.DataFrame) -> list[Finding] | None:
    """The findings with all their sentences; ``None``: the table was refused with one."""
    run = dataclasses.replace(golden(name), samples=table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = experiments.get(name).analyse(run)
        except UserError:
            return None
        for finding in found:
            assert finding.plain
            ends = finding.low, finding.high
            assert all(map(math.isnan, ends)) or ends[0] <= finding.effect <= ends[1], finding
            assert finding.to_dict()["verdict"] in ("supported", "refuted", "inconclusive")
        return found


def attack(name: str, tables: Tables) -> Counter[tuple[str, bool]]:
    """How many of each kind were refused, and how many were not."""
    refused: Counter[tuple[str, bool]] = Counter()
    for what, table in tables:
        with ending(f"{name}, {what}"):
            try:
                refused[what.partition(":")[0], analysed(name, table) is None] += 1
            except Exception as error:
                error.add_note(f"{name}: {what}")
                raise
    return refused


def some(name: str, most: int) -> Tables:
    """Some hostile tables of each kind, others for each experiment."""
    generator = np.random.default_rng(list(name.encode()))
    of_kind = itertools.groupby(hostile(name), key=lambda one: one[0].partition(":")[0])
    for _, tables in of_kind:
        kept: list[tuple[str, pd.DataFrame]] = []  # a reservoir: not all tables of a kind at once
        for number, table in enumerate(tables):
            place = number if number < most else int(generator.integers(number + 1))
            if place < most:
                kept[place : place + 1] = [table]
        yield from kept


@pytest.mark.parametrize("name", mostly_slow(experiments.NAMES, _QUICK))
def test_some_hostile_tables_end_with_a_sentence(name: str) -> None:
    assert any(refused for _, refused in attack(name, some(name, _OF_EACH_KIND)))


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.NAMES)
def test_many_hostile_tables_end_with_a_sentence(name: str) -> None:
    found = attack(name, some(name, _MANY))
    assert found["infinite", True]
    assert not found["infinite", False]
    assert {kind for kind, _ in found} == {kind.__name__ for kind in HOSTILE}


@pytest.mark.slow
@pytest.mark.timeout(1500)  # hundreds of analyses
@pytest.mark.parametrize("name", experiments.NAMES)
def test_all_tables_without_some_columns_or_of_other_types_end_with_a_sentence(name: str) -> None:
    columns, generator = experiments.get(name).columns, np.random.default_rng(2)
    for kind in (absent, at_bounds, types):
        attack(name, kind(golden(name).samples, columns, generator))


@pytest.mark.parametrize("name", mostly_slow(experiments.NAMES, _QUICK))
def test_the_order_of_rows_and_columns_changes_no_finding(name: str) -> None:
    samples, generator = golden(name).samples, np.random.default_rng(3)
    others = (
        samples.iloc[generator.permutation(len(samples))],
        samples.iloc[:, generator.permutation(len(samples.columns))],
    )
    expected = _numbers_of(analysed(name, samples))
    for table in others:
        found = _numbers_of(analysed(name, table))
        assert [one[:2] for one in found] == [one[:2] for one in expected]
        for (_, _, *ends), (_, _, *before) in zip(found, expected, strict=True):
            np.testing.assert_allclose(ends, before, rtol=1e-9, atol=1e-9)


def _numbers_of(found: list[Finding] | None) -> list[tuple[str, str, float, float, float]]:
    assert found
    return sorted((one.subject, one.verdict, one.effect, one.low, one.high) for one in found)


@pytest.mark.parametrize("name", experiments.NAMES)
def test_only_the_required_columns_are_required(name: str) -> None:
    required = [column.name for column in experiments.get(name).columns if column.required]
    samples = golden(name).samples
    refused = analysed(name, samples[required]) is None
    assert refused == (name == "counters")  # it compares counts, or times, and either is enough


@pytest.mark.parametrize("name", [name for name in experiments.NAMES if "ok" in columns_of(name)])
def test_rows_that_are_not_ok_count_for_nothing(name: str) -> None:
    samples = golden(name).samples.assign(ok=True)
    measured = [one.name for one in columns_of(name).values() if one.role == "measured"]
    bad = samples.sample(frac=0.3, random_state=4).assign(ok=False)
    numbers = bad[[one for one in measured if one in bad]].select_dtypes("float") * 7
    found = analysed(name, pd.concat([samples, bad.assign(**numbers)], ignore_index=True))
    assert str(_numbers_of(found)) == str(_numbers_of(analysed(name, samples)))  # some are NaN
    assert analysed(name, samples.assign(ok=False)) is None


@pytest.mark.parametrize("name", experiments.NAMES)
def test_null_a_clock_that_stands_still_is_no_evidence(name: str) -> None:
    measured = [column for column in experiments.get(name).columns if column.role == "measured"]
    assert measured
    timed = [column.name for column in measured if not column.set]
    if not timed:
        return  # a period and the segments of a recording are set, not timed
    for value in (1, 1000):
        table = golden(name).samples.assign(**dict.fromkeys(timed, value))
        found = analysed(name, table)
        assert found is None or not [
            finding.subject
            for finding in found
            if finding.verdict != "inconclusive" and not finding.of.counted
        ]
