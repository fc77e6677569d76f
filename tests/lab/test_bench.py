"""pl.bench and pl.sample: samples of Python code in this process, as runs of bracketed."""

from __future__ import annotations

import functools
import gc
import threading
import time
from types import CodeType, FunctionType

import pytest

import perflib as pl
from perflib.lab.bench import Piece, Sampling, Taken, elsewhere, name_of


def work(n: int = 300) -> int:
    return sum(i * i for i in range(n))


def twice() -> int:
    return work(600)


def test_a_function_that_does_twice_as_much_takes_longer() -> None:
    run = pl.bench(twice, against=work, budget_s=2.5, precision_percent=100)
    (slower,) = run.findings.where(claim="slower")
    assert slower.about == {"name": "twice", "against": "work"}
    assert slower.effect > 50  # whether its interval says so in that time depends on the load
    assert slower.verdict != "refuted"
    assert pl.load(run.id).samples.equals(run.samples)
    assert set(run.samples.groupby("name")["calls"].nunique()) == {1}
    assert any("garbage collector" in problem for problem in run.provenance["problems"])
    assert gc.isenabled()


def test_one_function_alone_is_described() -> None:
    run = pl.bench(work, name="alone", budget_s=1)
    assert [one.of.name for one in run.findings] == ["alone"]
    pieces = run.table("pieces")
    assert pieces["name"].tolist() == ["alone"]
    assert pieces["time_ns_low"][0] < pieces["time_ns"][0] < pieces["time_ns_high"][0]


def test_fast_functions_are_called_often_and_slow_ones_once() -> None:
    fast, slow = Piece("fast", lambda: None), Piece("slow", lambda: time.sleep(0.002))
    fast.calibrate()
    slow.calibrate()
    assert fast.calls > 100
    assert slow.calls == 1
    taken = Taken()
    slow.sample(taken)
    fast.sample(taken)
    columns = taken.columns()
    assert columns["calls"] == [1, fast.calls]
    assert columns["time_ns"][0] >= 2_000_000
    assert not len(taken)


def test_what_a_function_raises_comes_before_anything_is_measured() -> None:
    with pytest.raises(ZeroDivisionError):
        pl.bench(lambda: 1 / 0)
    assert gc.isenabled()
    with pytest.raises(pl.UserError, match="5 is no function"):
        pl.bench(5)  # type: ignore[arg-type]
    with pytest.raises(pl.UserError, match="precision_percent"):
        pl.bench(work, precision_percents=1)


def test_names() -> None:
    assert name_of(functools.partial(functools.partial(work, 3))) == "work"
    assert name_of(Piece("a", work).sample) == "Piece.sample"
    run = pl.bench(work, against=work, budget_s=0.5)
    assert set(run.samples["name"]) == {"work", "work (against)"}


def test_samples_of_marked_pieces() -> None:
    sample = Sampling()
    with pytest.raises(pl.UserError, match="no sample was taken"):
        sample.run()

    def take() -> None:
        for _ in range(40):
            with sample("short"):
                work()
            with sample("long"):
                twice()

    thread = threading.Thread(target=take)
    thread.start()
    take()
    thread.join()
    with pytest.raises(KeyError), sample("raises"):
        raise KeyError
    run = sample.run(against="short")
    assert run.samples.groupby("name").size().to_dict() == {"short": 80, "long": 80}
    assert run.findings.where(claim="slower")[0].about["name"] == "long"
    with pytest.raises(pl.UserError, match="no sample was taken"):
        sample.run()


def test_a_function_is_copied_with_all_that_it_has() -> None:
    extra = 3

    def adds(one: int, two: int = 2, *, three: int = 4) -> list[int]:
        return [one + two + three + extra + each for each in range(2)]

    class Adder:
        def adds(self) -> int:
            return extra

    copy = elsewhere(adds)
    assert copy(1) == adds(1) == [10, 11]
    assert isinstance(copy, FunctionType)
    assert copy.__code__ is not adds.__code__
    nested = [one.co_consts for one in (copy.__code__, adds.__code__)]
    codes = [[each for each in one if isinstance(each, CodeType)] for one in nested]
    assert all(one is not other for one, other in zip(*codes, strict=True))
    assert elsewhere(functools.partial(adds, 1, three=1))() == [7, 8]
    assert elsewhere(Adder().adds)() == extra
    assert elsewhere(sorted) is sorted
