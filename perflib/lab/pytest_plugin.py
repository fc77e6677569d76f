"""The plug-in for pytest: its options, and the fixture ``perflib_bench``.

It is loaded in every session of every user: what measures is imported when a test asks for it.

Each test with the fixture runs once as all others do. Then those that passed run again and again,
in random order, with fresh fixtures of their own, until the budget ends: each pass takes some
milliseconds of samples of each. So a change of the machine meets all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perflib.lab.pytest_bench import Benchmarks

_WORKERS = (
    "perflib_bench measures in rounds across all tests, and xdist's workers would disturb each "
    "other: run these tests with -n 0"
)


def _number(unit: str) -> Callable[[str], float]:
    """Of an option such as ``3%`` or ``20s``."""

    def read(text: str) -> float:
        try:
            value = float(text.strip().removesuffix(unit))
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e6:
            msg = f"{text!r} is no such number: write it as 3{unit}"
            raise pytest.UsageError(msg)
        return value

    return read


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options ``--perflib-...``."""
    group = parser.getgroup("perflib", "benchmarks with the fixture perflib_bench")
    group.addoption(
        "--perflib-budget", type=_number("s"), default=5.0, metavar="TIME",
        help="time for each benchmark, as 20s; 0s: call each function once, and measure nothing",
    )  # fmt: skip
    group.addoption(
        "--perflib-fail-above", type=_number("%"), metavar="PERCENT",
        help="fail where a function takes longer by more, as 3%%, than the one given by against=, "
        "or than in the baseline",
    )  # fmt: skip
    group.addoption(
        "--perflib-save", action="store_true",
        help="add this session to the baseline of this machine; a verdict takes three sessions",
    )  # fmt: skip
    group.addoption("--perflib-json", metavar="FILE", help="write the results as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Where the benchmarks of this session will be, and their results."""
    target = config.getoption("--perflib-json")
    if target and not Path(target).absolute().parent.is_dir():
        msg = f"--perflib-json={target}: there is no folder {Path(target).absolute().parent}"
        raise pytest.UsageError(msg)
    config.stash[_KEY] = None


_KEY: pytest.StashKey[Benchmarks | None] = pytest.StashKey()


@pytest.fixture
def perflib_bench(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``perflib_bench(f, *args, **kwargs)``: time a function between probes; returns its result.

    ``against=g`` compares it, in turns, with another function of the same arguments. Without it
    the function is compared with the baseline of this machine.
    """
    config = request.config
    if hasattr(config, "workerinput"):
        pytest.fail(_WORKERS, pytrace=False)
    benchmarks = config.stash[_KEY]
    if benchmarks is None:
        from perflib.lab.pytest_bench import Benchmarks

        benchmarks = config.stash[_KEY] = Benchmarks(config)
    return benchmarks.of(request.node)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """After all tests: the rounds."""
    outcome: Any = yield
    benchmarks = session.config.stash[_KEY]
    if benchmarks is not None and outcome.excinfo is None:
        benchmarks.measure()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Results are worked out; a benchmark that takes longer fails the session."""
    benchmarks = session.config.stash[_KEY]
    if benchmarks is not None and benchmarks.finish() and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The results, a sentence a benchmark."""
    benchmarks = config.stash[_KEY]
    if benchmarks is not None:
        terminalreporter.write_sep("-", "perflib benchmarks")
        for line in benchmarks.lines:
            terminalreporter.write_line(line)
