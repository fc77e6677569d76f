"""Whatever table is given, an analysis ends with findings or with a sentence."""

from __future__ import annotations

import dataclasses
import itertools
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from perflib import experiments
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from tests.hostile_tables import HOSTILE, Tables, golden, hostile

_LONGEST_S = 60.0  # of CPU time: no limit of speed, but a guard against an analysis without an end
_OF_EACH_KIND, _MANY = 3, 12  # in the short form, and in the long one
# Their verdicts rest on samples, or on a recording; a running job is cut into equal segments,
# which last the same.
_NOT_TIMED = {"event_profile", "threads"}


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
        warnings.simplefilter("ignore", RuntimeWarning)  # of numpy, on its way to infinity
        try:
            found = experiments.get(name).analyse(run)
        except UserError:
            return None
        for finding in found:
            assert finding.plain
            assert finding.to_dict()["verdict"] in ("supported", "refuted", "inconclusive")
        return found


def attack(name: str, tables: Tables) -> int:
    refused = 0
    for what, table in tables:
        with ending(f"{name}, {what}"):
            try:
                refused += analysed(name, table) is None
            except Exception as error:
                error.add_note(f"{name}: {what}")
                raise
    return refused


def some(name: str, most: int) -> Tables:
    """Some hostile tables of each kind, others for each experiment."""
    generator = np.random.default_rng(list(name.encode()))
    of_kind = itertools.groupby(hostile(name), key=lambda one: one[0].partition(":")[0])
    for _, tables in of_kind:
        every = list(tables)
        for place in generator.permutation(len(every))[:most]:
            yield every[place]


@pytest.mark.parametrize("name", experiments.NAMES)
def test_some_hostile_tables_end_with_a_sentence(name: str) -> None:
    assert attack(name, some(name, _OF_EACH_KIND)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.NAMES)
def test_many_hostile_tables_end_with_a_sentence(name: str) -> None:
    assert attack(name, some(name, _MANY)) > len(HOSTILE)


@pytest.mark.parametrize("name", [one for one in experiments.NAMES if one not in _NOT_TIMED])
def test_null_a_clock_that_stands_still_is_no_evidence(name: str) -> None:
    timed = [column.name for column in experiments.get(name).columns if column.role == "measured"]
    assert timed
    for value in (1, 1000):
        table = golden(name).samples.assign(**dict.fromkeys(timed, value))
        found = analysed(name, table)
        assert found is None or not [
            finding.subject
            for finding in found
            if finding.verdict != "inconclusive" and not finding.of.counted
        ]


def test_the_golden_tables_themselves_give_verdicts() -> None:
    verdicts = {
        finding.verdict
        for name in ("kv_per_core", "alias_offsets")
        for finding in analysed(name, golden(name).samples) or []
    }
    assert verdicts - {"inconclusive"}
