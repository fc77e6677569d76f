from __future__ import annotations

from pathlib import Path

import pytest

from perflib.machine.hardware import cpuid
from perflib.machine.hardware.cpuid import Registers, leaves_or_reason, read_leaves
from perflib.model.errors import UserError
from tests.machine.dumps import dump


class Processor:
    """Answers like one of the dumps, and like Intel's for a leaf that does not exist: nonsense."""

    def __init__(self, name: str) -> None:
        self.known = dump(name)
        self.asked: list[tuple[int, int]] = []

    def __call__(self, leaf: int, subleaf: int) -> Registers:
        self.asked.append((leaf, subleaf))
        return self.known.get((leaf, subleaf), (0x7, 0x340, 0x340, 0))


def test_every_subleaf_of_leaf_18_is_read() -> None:
    found = read_leaves(Processor("sapphire_rapids"))
    assert [subleaf for leaf, subleaf in found if leaf == 0x18] == list(range(9))


def test_no_leaf_beyond_the_last_is_read() -> None:
    processor = Processor("haswell_ep")
    found = read_leaves(processor)
    assert {leaf for leaf, _ in found} == {0x0, 0x1, 0x2, 0x6, 0x7, 0xA, 0xF}
    assert (0x18, 0) not in processor.asked
    assert (0x80000001, 0) not in processor.asked
    assert (0x40000000, 0) not in processor.asked


def test_subleaves_of_features_and_monitoring_are_read_where_there_are_any() -> None:
    many, few = read_leaves(Processor("emerald_rapids")), read_leaves(Processor("guest"))
    assert {(0x7, 1), (0xF, 1)} <= set(many)
    assert (0x7, 2) not in many
    assert (0xF, 1) not in few


def test_without_a_compiler_the_reason_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PERFLIB_CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PERFLIB_CACHE", str(tmp_path / "cache"))
    cpuid.leaves.cache_clear()
    found, reason = leaves_or_reason()
    assert found == {}
    assert "no C compiler" in reason
    with pytest.raises(UserError, match="no C compiler"):
        cpuid.leaves()
