"""What each test file costs: CPU seconds and peak memory, its processes included.

make test ARGS="-p tests.costs"                  prints a table, the costliest files first
make test ARGS="-p tests.costs --list-slow S"    also adds to slow.txt what costs S seconds or more
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slow import SLOW

_SHOWN = 60  # files
_PEAK = "5"  # what the kernel takes for "reset the peak of resident memory"
_COSTS: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
_KEY = "perflib-costs"


def _cpu_s() -> tuple[float, float]:
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A fixture counts for the first test that asks for it, what it starts for the last one."""
    own, children = _cpu_s()
    Path("/proc/self/clear_refs").write_text(_PEAK)
    result = yield
    cost = _COSTS[item.nodeid.partition("[")[0].partition("@")[0]]  # xdist writes @GROUP behind
    now = _cpu_s()
    cost[0] += 1
    cost[1] += now[0] - own
    cost[2] += now[1] - children
    cost[3] = max(cost[3], _peak_mib())
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of xdist hands its table to the one that prints."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEY] = dict(_COSTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the table of a process that has ended."""
    for file, (tests, own, children, peak) in (
        getattr(node, "workeroutput", {}).get(_KEY, {}).items()
    ):
        cost = _COSTS[file]
        cost[:] = cost[0] + tests, cost[1] + own, cost[2] + children, max(cost[3], peak)


def pytest_addoption(parser: pytest.Parser) -> None:
    """One that adds to the list of slow tests."""
    parser.addoption("--list-slow", type=float, metavar="S", help="list what costs S seconds")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table, by CPU seconds; add to the list."""
    by_file: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for name, (tests, own, children, peak) in _COSTS.items():
        cost = by_file[name.partition("::")[0]]
        cost[:] = cost[0] + tests, cost[1] + own, cost[2] + children, max(cost[3], peak)
    rows = sorted(by_file.items(), key=lambda row: -row[1][1] - row[1][2])
    total = sum(row[1] + row[2] for row in by_file.values())
    terminalreporter.section(f"{total:.0f} s of CPU time in {len(rows)} files")
    terminalreporter.write_line("| CPU s | of children | tests | peak MiB | file |")
    terminalreporter.write_line("| --: | --: | --: | --: | -- |")
    for file, (tests, own, children, peak) in rows[:_SHOWN]:
        line = f"| {own + children:.1f} | {children:.1f} | {tests:.0f} | {peak:.0f} | {file} |"
        terminalreporter.write_line(line)
    if (least_s := terminalreporter.config.getoption("--list-slow")) is not None:
        costly = [name for name, cost in _COSTS.items() if cost[1] + cost[2] >= least_s]
        listed = sorted({*costly, *SLOW.read_text(encoding="utf-8").splitlines()})
        SLOW.write_text("".join(f"{name}\n" for name in listed), encoding="utf-8")
