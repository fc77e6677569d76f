from __future__ import annotations

from pathlib import Path

from perflib.machine.hardware.caches import caches
from tests.machine import trees


def test_half_a_description_is_left_out(tmp_path: Path) -> None:
    place = f"{trees.CPU}/cpu0/cache/index0"
    trees.write(tmp_path, {f"{place}/level": "1", f"{place}/type": "Data"})
    assert caches(tmp_path) == ()


def test_a_cache_without_ways_is_kept(tmp_path: Path) -> None:
    files = trees.cache_files(0, 2, 2, "Unified", "1280K", 10, "")
    del files[f"{trees.CPU}/cpu0/cache/index2/ways_of_associativity"]
    (only,) = caches(trees.write(tmp_path, files))
    assert (only.ways, only.shared_cpus, str(only)) == (None, (0,), "L2 1.25 MiB")
