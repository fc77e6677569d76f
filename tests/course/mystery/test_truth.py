"""The truth of each trouble: measured where it must be, and never a matter of one noisy start."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from perflib.course.mystery import job, truth
from perflib.course.mystery.causes import CAUSES
from perflib.course.mystery.draw import Trouble
from perflib.model.errors import MeasurementError
from tests.course.mystery.cases import seed_of, trouble_of


def job_that_takes(times: Iterator[float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The job's output is made up; the commands that were run."""
    ran: list[str] = []

    def run(command: str, events: int, cpu: int | None) -> str:
        ran.append(f"{command} on {cpu}")
        return "".join(f"Event nr. {n} took {next(times):.9f} s\n" for n in range(events))

    monkeypatch.setattr(truth, "_run", run)
    return ran


@pytest.mark.parametrize(
    ("trouble", "share", "size", "cpu"),
    [
        (Trouble("thief", "cpu1", 1, 0, 120, 0, 0), 11.5, 11.5, 1),  # the companion's own
        (Trouble("thief", "cpu1", 1, 0, 120, 0, 0), None, 12.0, 1),  # or else what was made
        (Trouble("quota", "", 1, 0, 250, 0, 0), 0.1, 25.0, None),  # what it withholds
        (Trouble("nothing", "", 1, 0, 0, 3, 0), 0.3, 0.0, None),
    ],
)
def test_the_size_of_what_is_made(
    trouble: Trouble, share: float | None, size: float, cpu: int | None
) -> None:
    found = truth.measured(trouble, 1, share)
    assert (found.cause, found.place, found.cpu) == (trouble.cause, trouble.place, cpu)
    assert found.size.effect == size
    assert (found.size.low < size < found.size.high) == (size > 0)
    assert found.is_negligible == (found.size == (0.0, 0.0, 0.0)) == (size == 0)


@pytest.mark.parametrize("cause", ["function", "code", "buffer"])
def test_a_costlier_job_is_compared_with_a_sound_one(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = trouble_of(cause)
    commands: list[str] = []
    starts = itertools.count(1)

    def run(command: str, events: int, cpu: int | None) -> str:
        assert cpu == trouble.cpu
        if command not in commands:
            commands.append(command)
        bad = job.number(trouble, seed_of(cause), which=2 if cause == "buffer" else trouble.which)
        time_s = 0.0115 if f"{bad:016x}" in command else 0.01
        time_s *= 1.8 if next(starts) % 6 == 0 else 1.0  # one in six is disturbed as a whole
        return f"Event nr. 0 took {time_s:.9f} s\n" * events

    monkeypatch.setattr(truth, "_run", run)
    found = truth.measured(trouble, seed_of(cause), 0.0)
    assert len(commands) == 2
    assert found.size.low < 15.0 < found.size.high
    assert found.size.effect == pytest.approx(15.0, abs=1.0)
    assert (found.cpu is None) == (cause == "buffer")


def test_it_goes_on_until_it_is_known_and_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trouble = Trouble("code", "cpu1", 1, 0, 1000, 0, 0)
    steady = job_that_takes(iter([0.01] * 10_000), monkeypatch)
    found = truth.measured(trouble, 1, None)
    assert len(steady) == 2 * truth._LEAST_PAIRS
    assert found.is_negligible
    wild = iter(0.01 * (1 + (n // 5 * 7919 % 97) / 50) for n in range(10**6))
    noisy = job_that_takes(wild, monkeypatch)
    wide = truth.measured(trouble, 1, None)
    assert len(noisy) == 2 * truth._MOST_PAIRS
    assert wide.size.half_width > found.size.half_width


def test_waits_are_those_of_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.28, 0.30, 0.32, 0.29, 0.31, 0.30])
    monkeypatch.setattr(
        truth, "_run", lambda *_: f"geometry_lock 0.9\noutput_lock {next(shares)}\nchecksum 1\n"
    )
    found = truth.measured(Trouble("lock", "output_lock", 1, 2, 700, 0, 0), 1, None)
    assert found.size.effect == pytest.approx(30.0)
    assert found.size.low <= 24.0
    assert found.size.high >= 36.0


@pytest.mark.parametrize("cause", ["function", "lock"])
def test_a_job_that_does_not_run_is_a_sentence(cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = trouble_of(cause)
    monkeypatch.setattr(truth, "_run", lambda *_: "nothing of use\n")
    with pytest.raises(MeasurementError, match="the job of the mystery"):
        truth.measured(trouble, 1, None)
    monkeypatch.undo()
    monkeypatch.setattr(job, "command", lambda _: "false {first} {events} {seed}")
    with pytest.raises(MeasurementError, match="the job of the mystery ended with status 1"):
        truth.measured(trouble, 1, None)


@pytest.mark.parametrize("cause", list(CAUSES))
def test_every_truth_of_this_machine_has_an_interval_and_a_source(cause: str) -> None:
    found = truth.measured(trouble_of(cause), seed_of(cause), 12.0)
    assert found.size.low <= found.size.effect <= found.size.high
    assert found.how
    assert re.match(cause, str(found))
