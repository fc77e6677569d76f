from __future__ import annotations

from perflib.lab import machine as tables
from perflib.machine.hardware.features import features
from tests.machine.dumps import dump


def test_features_say_what_they_are_for_and_whether_they_are_enabled() -> None:
    states = features(dump("emerald_rapids"), xcr0=0x7, flags=frozenset({"arch_lbr"}))
    table = tables.features(states)
    assert len(table.rows) == len(states)
    rows = {row[1]: row for row in table.rows}
    group, _, state, purpose, note = rows["AVX-512 F"]
    assert (group, state) == ("vectors", "▲ not enabled")
    assert "512-bit vectors" in purpose
    assert note == "the system does not save the ZMM and mask registers (XCR0 is 0x7)"
    assert rows["AVX2"][2] == "✓ enabled"
    assert rows["AVX10"][2] == "– absent"
    assert rows["architectural LBR"][4] == "32 branches deep"
    marked = {row[1] for i, row in enumerate(table.rows) if table.classes[i, 2] == "supported"}
    assert {"AVX-512 F", "AMX TILE", "PEBS"} <= marked
    assert "AVX2" not in marked


def test_nothing_known_is_marked_so() -> None:
    table = tables.features(features({}))
    assert {row[2] for row in table.rows} == {"? unknown"}
    assert "? unknown" in table.html()
