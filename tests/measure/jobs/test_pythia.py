"""The Pythia job: reproducible event by event, with lines that the job log reads."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import SimpleNamespace

import pytest

from perflib.instruments.joblog.joblog import parse
from perflib.instruments.joblog.jobrun import run_job
from perflib.instruments.joblog.logformat import FORMATS
from perflib.measure.jobs import pythia
from perflib.measure.jobs.pythia import Generators, main

SEED, PILEUP = 7, 2
needs_pythia = pytest.mark.skipif(
    importlib.util.find_spec("pythia8mc") is None,
    reason="pythia8mc is not installed (pip install 'perflib-jupyter[hep]')",
)


@pytest.fixture(scope="module")
def generators() -> Generators:
    return Generators(SEED, PILEUP)


@needs_pythia
def test_event_depends_on_seed_and_number_alone(generators: Generators) -> None:
    in_order = [generators.generate(event) for event in range(30)]
    backwards = [generators.generate(event) for event in reversed(range(30))]
    assert backwards[::-1] == in_order
    assert Generators(SEED, PILEUP).generate(5) == in_order[5]
    assert len({summary.checksum for summary in in_order}) == 30
    assert Generators(SEED + 1, PILEUP).generate(4) not in in_order


@needs_pythia
def test_pileup_adds_to_the_same_top_pair(generators: Generators) -> None:
    alone = Generators(SEED, 0).generate(3)
    assert alone.particles > 100  # a top pair at 13 TeV has some hundreds to thousands
    assert generators.generate(3).particles > alone.particles


@needs_pythia
def test_program_logs_what_the_job_log_reads(generators: Generators) -> None:
    argv = [sys.executable, "-m", "perflib.measure.jobs.pythia", "--events", "3", "--first", "4"]
    argv += ["--seed", str(SEED), "--pileup", str(PILEUP)]
    result = run_job(argv, FORMATS["kv"], timeout_s=100)
    assert result.returncode == 0
    assert [event.label for event in result.events] == [4, 5, 6]
    # 0: this process had to wait for a core, and read an event's first and last line at once.
    assert all(event.time_ns >= 0 for event in result.events)
    assert all(event.reported_seconds for event in result.events)
    assert result.problems == []

    log = "\n".join([*result.tail, ""]).encode()  # ten lines: all of them
    assert [event.label for event in parse([(0, log)], FORMATS["athena"], [])] == [4, 5, 6]
    clean = re.compile(r"(AthenaEventLoopMgr|G4SimTimer|Pythia8) +INFO   \S.*|G4SimTimer .*")
    assert [line for line in result.tail if not clean.fullmatch(line)] == []
    assert len(result.tail) == 10

    summaries = [generators.generate(event) for event in (4, 5, 6)]
    particles = sum(summary.particles for summary in summaries)
    checksum = sum(summary.checksum for summary in summaries) % 2**64
    assert result.tail[-1].endswith(f"3 events, {particles} particles, checksum {checksum:016x}")


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


# --- without Pythia ----------------------------------------------------------------------------


def test_without_pythia_the_message_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pythia8mc", None)
    assert status("--events", "1") == 2
    printed = capsys.readouterr()
    assert "pip install 'perflib-jupyter[hep]'" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--events", "0"], "'--events': 0 is not in the range 1<=x<=1000000"),
        (["--first", "-1"], "'--first': -1 is not in the range 0<=x<=1000000000"),
        (["--seed", "x"], "'--seed': 'x' is not a valid integer range"),
        (["--pileup", "1001"], "'--pileup': 1001 is not in the range 0<=x<=1000"),
        (["--evens", "1"], "No such option"),
    ],
)
def test_options_out_of_range(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(*arguments) == 2
    assert message in capsys.readouterr().err


class FakePythia:
    """A generator whose events fail as often as asked; its random numbers count the attempts."""

    initialises = True
    failures = 0

    def __init__(self, _data: str, _banner: bool) -> None:
        self.rndm = SimpleNamespace(init=lambda _seed: None, flat=lambda: 0.5)
        self.event = SimpleNamespace(size=lambda: 11)
        self.attempts = 0

    def readString(self, _line: str) -> bool:  # noqa: N802 (Pythia's own name)
        return self.initialises

    def init(self) -> bool:
        return True

    def next(self) -> bool:
        self.attempts += 1
        return self.attempts % (self.failures + 1) == 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakePythia]:
    class Fake(FakePythia):
        pass

    monkeypatch.setitem(sys.modules, "pythia8mc", SimpleNamespace(Pythia=Fake))
    return Fake


def test_pythia_without_its_data(
    fake: type[FakePythia], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.initialises = False
    assert status() == 1
    assert "PYTHIA8DATA" in capsys.readouterr().err


def test_collision_that_fails_is_tried_again(
    fake: type[FakePythia], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.failures = 9
    assert status("--events", "2", "--pileup", "3") == 0
    assert "2 events, 88 particles, checksum " in capsys.readouterr().out
    fake.failures = 10
    assert status("--events", "2") == 1
    assert "gave up on event 0 (signal) after 10 attempts" in capsys.readouterr().err


def test_average_is_the_mean_with_its_standard_error() -> None:
    assert pythia._average([0.5]) == (0.5, 0.0)
    mean, error = pythia._average([1.0, 2.0, 3.0])
    assert (mean, error) == pytest.approx((2.0, (1 / 3) ** 0.5))
