"""What interrupted a CPU: recorded and made-up tables of the kernel, and the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflib.machine.activity.interrupts import CoreActivity, core_activity
from tests.machine import trees

# As recorded on a guest with two CPUs, shortened.
NAMES = ("interrupts", "softirqs", "schedstat")
INTERRUPTS, SOFTIRQS, SCHEDSTAT = (
    (Path(__file__).parents[2] / "data" / "proc" / name).read_text().rstrip("\n") for name in NAMES
)
RECORDED = {"proc/interrupts": INTERRUPTS, "proc/softirqs": SOFTIRQS, "proc/schedstat": SCHEDSTAT}


def activity(root: Path, cpu: int, **tables: str) -> CoreActivity:
    return core_activity(cpu, trees.write(root, {f"proc/{name}": t for name, t in tables.items()}))


def test_two_cpus(tmp_path: Path) -> None:
    trees.write(tmp_path, RECORDED)
    assert core_activity(1, tmp_path) == CoreActivity(
        by_kind={"HI": 0, "TIMER": 604922, "NET_RX": 174016, "RCU": 1290726},
        by_source={"24": 0, "36": 2327386, "NMI": 6, "LOC": 12811221, "CAL": 860805, "PIN": 0},
        switches=1800,
    )
    first = core_activity(0, tmp_path)
    assert (first.softirqs, first.interrupts, first.switches) == (1643392, 9911582, 800)


def table(cpus: list[int], rows: dict[str, list[int]]) -> str:
    """A table with a column for each CPU, as the kernel prints it: ten digits after a blank."""
    head = " " * 12 + "".join(f"CPU{cpu:<8}" for cpu in cpus)
    cells = {name: "".join(f" {count:>10}" for count in counts) for name, counts in rows.items()}
    return "\n".join([head, *(f"{name:>4}:{counts}" for name, counts in cells.items())])


def test_offline_cpus_have_no_column(tmp_path: Path) -> None:
    cpus = [0, 1, 4, 7]
    rows = {"24": [1, 2, 3, 4], "LOC": [10, 20, 30, 40]}
    trees.write(tmp_path, {"proc/interrupts": table(cpus, rows)})
    assert core_activity(4, tmp_path).by_source == {"24": 3, "LOC": 30}
    assert core_activity(7, tmp_path).interrupts == 44
    assert core_activity(2, tmp_path).by_source is None
    assert core_activity(40, tmp_path).interrupts is None


def test_columns_of_another_width(tmp_path: Path) -> None:
    rows = (
        "      CPU0   CPU1   CPU2\n 24:  5  66  777  GICv3 27 Level\nIPI0:  1  2  3  Calls\nX: 1 2"
    )
    for cpu, expected in ((0, {"24": 5, "IPI0": 1}), (2, {"24": 777, "IPI0": 3})):
        assert activity(tmp_path, cpu, interrupts=rows).by_source == expected


def test_a_table_that_was_cut_off(tmp_path: Path) -> None:
    cut = INTERRUPTS[: INTERRUPTS.index("12811221")]
    assert activity(tmp_path, 0, interrupts=cut).by_source == {"24": 1, "36": 0, "NMI": 5}
    assert activity(tmp_path, 0, interrupts="\n \nnonsense").by_source is None


def test_what_is_absent_is_not_zero(tmp_path: Path) -> None:
    found = core_activity(0, tmp_path)
    assert found == CoreActivity(None, None, None)
    assert (found.softirqs, found.interrupts) == (None, None)
    trees.write(tmp_path, RECORDED)
    assert core_activity(0, tmp_path) - found == found
    assert found - core_activity(0, tmp_path) == found


# --- switches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["15", "16", "17"])
def test_known_versions_have_the_same_fields(tmp_path: Path, version: str) -> None:
    text = SCHEDSTAT.replace("version 15", f"version {version}")
    assert activity(tmp_path, 1, schedstat=text).switches == 1800
    assert activity(tmp_path, 10, schedstat=text).switches == 7
    assert activity(tmp_path, 2, schedstat=text).switches is None


@pytest.mark.parametrize(
    "text",
    [
        SCHEDSTAT.replace("version 15", "version 14"),  # twelve fields
        SCHEDSTAT.replace("version 15", "version 18"),
        SCHEDSTAT.partition("\n")[2],
        "version 15\ntimestamp 1\ncpu1 1 0 2 3 4",
        "",
    ],
)
def test_other_versions_are_not_guessed(tmp_path: Path, text: str) -> None:
    assert activity(tmp_path, 1, schedstat=text).switches is None


# --- differences ---------------------------------------------------------------------------------


def test_what_happened_between(tmp_path: Path) -> None:
    trees.write(tmp_path, RECORDED)
    before = core_activity(1, tmp_path)
    later = {
        "interrupts": INTERRUPTS.replace("12811221", "12811231").replace("860805", "860806"),
        "softirqs": SOFTIRQS.replace("604922", "604925"),
        "schedstat": SCHEDSTAT.replace("1800", "1802"),
    }
    meanwhile = activity(tmp_path, 1, **later) - before
    assert (meanwhile.softirqs, meanwhile.interrupts, meanwhile.switches) == (3, 11, 2)
    assert meanwhile.by_kind == {"HI": 0, "TIMER": 3, "NET_RX": 0, "RCU": 0}


def test_counts_that_wrap_step_back_come_and_go() -> None:
    before = CoreActivity({"TIMER": 4294967290, "RCU": 7}, {"24": 500, "25": 4, "26": 9}, 10)
    after = CoreActivity({"TIMER": 4, "RCU": 7}, {"24": 2, "25": 5, "27": 3}, 8)
    meanwhile = after - before
    assert meanwhile.by_kind == {"TIMER": 10, "RCU": 0}
    assert meanwhile.by_source == {"24": 0, "25": 1, "27": 3}
    assert meanwhile.switches == 0


def test_a_cpu_that_went_offline(tmp_path: Path) -> None:
    before = activity(tmp_path, 1, interrupts=table([0, 1], {"LOC": [5, 6]}))
    gone = activity(tmp_path, 1, interrupts=table([0], {"LOC": [9]}))
    assert (gone - before).interrupts is None
    assert (before - gone).interrupts is None
