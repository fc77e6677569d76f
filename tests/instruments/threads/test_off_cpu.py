"""Where threads had no core: samples for an off-CPU flame graph, and filters of them."""

from __future__ import annotations

from pathlib import Path

from perflib.instruments.profile import views
from perflib.instruments.threads.formats import Selection, State
from perflib.instruments.threads.samples import off_cpu_samples
from tests.instruments.threads.made import recording_of

RUNNING, READY, WAITING, SLEEPING, SPINNING, UNKNOWN = State


def test_time_without_a_core_by_stack_and_state(tmp_path: Path) -> None:
    made = recording_of(
        tmp_path,
        [
            [
                (0, 2, RUNNING),
                (2, 7, WAITING, 0, -1, 0, -1, 0),
                (7, 9, READY, 0, -1, 0, -1, 0),
                (9, 12, READY),
                (12, 20, SLEEPING, 0, -1, -1, -1, 3),
            ]
        ],
    )
    table = off_cpu_samples(made)
    assert dict(zip(table["stack"].astype(str), table["period"], strict=True)) == {
        "main;event_loop;output;lock_wait;[waiting]": 5,
        "main;event_loop;output;lock_wait;[ready]": 2,
        "[ready]": 3,
        "main;join;[sleeping]": 8,
    }
    assert views.top_down(table, "period").total == 18
    part = off_cpu_samples(made, Selection(5, 14), [WAITING, SLEEPING])
    assert part["period"].tolist() == [2, 2]
    assert part["time_ns"].tolist() == [5, 12]
