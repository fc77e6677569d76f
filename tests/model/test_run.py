"""Identifiers of runs: none twice, sorted by time, different by host, read from old files too."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from perflib.experiments import NAMES
from perflib.measure.journal import Journal
from perflib.model.errors import MeasurementError
from perflib.model.run import experiment_of, new_id


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """All starts are in one second, on one host."""
    second = time.gmtime(1_767_323_045)
    monkeypatch.setattr(time, "gmtime", lambda *_: second)
    on_host(monkeypatch, "node17")


def on_host(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=name))


@pytest.mark.usefixtures("frozen")
def test_no_two_starts_of_one_second_share_a_name() -> None:
    names = {new_id("kv_per_core") for _ in range(100_000)}
    assert len(names) == 100_000
    form = re.compile(r"kv_per_core-20260102-030405-node17-[0-9a-z]{10}")
    assert all(form.fullmatch(name) for name in names)
    ends = [name.rsplit("-", 1)[1] for name in names]
    for place in range(10):  # every letter of the end carries five bits
        assert len({end[place] for end in ends}) == 32


@pytest.mark.usefixtures("frozen")
def test_a_second_run_of_one_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{new_id('machine')}.journal"
    Journal.create(path, {"first": True}).close()
    before = path.read_bytes()
    with pytest.raises(MeasurementError, match=r"journal cannot be made: .*exists"):
        Journal.create(path, {"first": False})
    assert path.read_bytes() == before


def test_names_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    seconds = (1_767_323_045, 1_767_323_046, 1_767_409_445, 1_798_859_045)
    for now in [time.gmtime(second) for second in seconds]:
        monkeypatch.setattr(time, "gmtime", lambda *_, now=now: now)
        names.append(new_id("numa"))
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("node17", "node17"),
        ("Node-17.cluster.example", "node17"),
        ("compute-rack12-0017", "uterack120017"[-12:]),
        ("", "host"),
        ("---", "host"),
        ("nöde'17/..", "nde17"),
    ],
)
def test_the_host_in_a_name_is_short_and_fit_for_a_file(
    host: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_host(monkeypatch, host)
    name = new_id("kv_per_core")
    assert name.split("-")[3] == shown
    assert name.count("-") == 4
    assert len(name) <= 60


@pytest.mark.parametrize("experiment", NAMES)
def test_the_experiment_is_read_from_old_and_new_names(experiment: str) -> None:
    assert experiment_of(f"{experiment}-20261121-033019-a9f1") == experiment
    assert experiment_of(new_id(experiment)) == experiment
