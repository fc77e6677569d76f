"""Lines that the threads of small programs share: which, whose bytes, and what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from perflib.instruments.simulators import lines
from perflib.instruments.simulators.lines import ACCESSES, FALSE, LINES, TRANSFERS, WRITES
from perflib.model.errors import MeasurementError
from tests.instruments.simulators.sim_programs import SOURCES, assemble, needs_qemu, needs_x86
from tests.instruments.threads.programs import compiled

LOOPS = 500_000  # of sim_shared.c
pytestmark = [needs_qemu, needs_x86]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Counts in two threads: in 'one' variable, on one 'line', or 'apart'."""
    source = (SOURCES / "sim_shared.c").read_text()
    return str(compiled(tmp_path_factory.mktemp("shared"), source))


def of(table: pd.DataFrame, symbol: str) -> dict[str, int]:
    mine = table[(table["symbol"] == symbol) & (table["thread"] < 0)]
    return dict(zip(mine["counter"], mine["simulated_count"], strict=True))


@pytest.mark.parametrize(
    ("how", "false", "second"), [("line", True, "8-15"), ("one", False, "0-7")]
)
def test_a_line_that_two_threads_count_on(program: str, how: str, false: bool, second: str) -> None:
    table = lines.shared_lines([program, how])
    assert set(table["tool"].str.partition(" ")[0]) == {"qemu-x86_64"}
    found = of(table, "counters")
    assert found[LINES] == 1
    assert 0 < found[TRANSFERS] <= 4 * LOOPS  # each increment loads and stores
    assert found[FALSE] == (found[TRANSFERS] if false else 0)
    used = table[(table["symbol"] == "counters") & (table["thread"] > 0)]
    assert set(used["function"]) == {"count"}
    written = used[used["counter"] == WRITES].set_index("thread")["bytes"]
    assert sorted(written) == sorted({"0-7", second} if false else ["0-7", "0-7"])
    accesses = used[used["counter"] == ACCESSES]["simulated_count"]
    assert len(accesses) == 2
    assert (accesses <= 2 * LOOPS).all()
    assert table[table["counter"] == "instructions"]["simulated_count"].item() > 4 * LOOPS


def test_null_counters_with_a_line_each_are_not_shared(program: str) -> None:
    assert of(lines.shared_lines([program, "apart"]), "counters") == {}


def test_null_a_program_of_one_thread_shares_nothing(tmp_path: Path) -> None:
    program = assemble("sim_ends", tmp_path, ENDING="nop", STATUS=0)
    found = of(lines.shared_lines([program]), "")
    assert (found[TRANSFERS], found[FALSE]) == (0, 0)
    assert found["instructions"] > 0


@pytest.mark.parametrize(
    "damaged",
    [
        ["line 1 2"], ["share 0 1 1 1 1 1"], ["instructions x"], ["line 0 1 1", "share 1 2"],
        ["instructions 1"],
    ],
)  # fmt: skip
def test_counts_that_are_damaged(monkeypatch: pytest.MonkeyPatch, damaged: list[str]) -> None:
    written = [*damaged, "threads 1"]
    monkeypatch.setattr(lines, "under_plugin", lambda *_: (written, "qemu 1.0"))
    with pytest.raises(MeasurementError, match="damaged"):
        lines.shared_lines(["any"])
