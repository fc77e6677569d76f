"""The names of what is measured between two cores, in the order of the kernel's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

STATES = (
    "local", "modified", "exclusive", "shared", "forward", "owned", "invalid", "shared_here",
    "owned_here", "last_level",
)  # fmt: skip
USUAL_STATES = STATES[:-1]  # all that is measured unless it is named: the last takes longer
WITH_THIRD = ("shared", "forward", "owned")
ACCESSES = ("load", "write")
LAYOUTS = ("spread shuffled", "neighbours shuffled", "spread ascending", "neighbours ascending")
PROTOCOLS: Mapping[str, str] = {
    "cas_one_line": "round trip",
    "write_read_two_lines": "round trip",
    "one_way_message": "one way",
}
# What rows are for that are no part of the matrices.
LAYOUT_CONTROL, ALONE = "layout", "alone"
CHASED = "modified load"  # what the layouts are the control of


def main_of(whats: Sequence[str]) -> str | None:
    """The one whose matrix stands for all: ``cas_one_line``, or the next best."""
    wanted = (*PROTOCOLS, CHASED, "modified write", "last_level load", *whats)
    return next((name for name in wanted if name in whats), None)


def way_of(what: str) -> str:
    """What one latency is of: a round trip, one way, or one line that is taken."""
    state, _, access = what.partition(" ")
    return PROTOCOLS.get(what, "one line" if state in STATES and access in ACCESSES else "")
