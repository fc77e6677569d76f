from __future__ import annotations

from pathlib import Path

from perflib.machine.hardware.caches import caches
from tests.machine import trees


def test_each_cache_once_with_those_who_share_it(tmp_path: Path) -> None:
    found = caches(trees.haswell_ep(tmp_path))
    assert len(found) == 3 * 24 + 2
    last = [cache for cache in found if cache.level == 3]
    assert [cache.shared_cpus for cache in last] == [
        tuple(range(0, 48, 2)),
        tuple(range(1, 48, 2)),
    ]
    assert last[0].size_bytes == 30 << 20
    assert (last[0].ways, last[0].line_bytes, last[0].sets) == (20, 64, 24576)
    assert {str(cache): cache.shared_cpus for cache in found if 25 in cache.shared_cpus} == {
        "L1d 32 KiB": (1, 25),
        "L1i 32 KiB": (1, 25),
        "L2 256 KiB": (1, 25),
        "L3 30 MiB": tuple(range(1, 48, 2)),
    }


def test_half_a_description_is_left_out(tmp_path: Path) -> None:
    place = f"{trees.CPU}/cpu0/cache/index0"
    trees.write(tmp_path, {f"{place}/level": "1", f"{place}/type": "Data"})
    assert caches(tmp_path) == ()


def test_a_cache_without_ways_is_kept(tmp_path: Path) -> None:
    files = trees.cache_files(0, 2, 2, "Unified", "1280K", 10, "")
    del files[f"{trees.CPU}/cpu0/cache/index2/ways_of_associativity"]
    (only,) = caches(trees.write(tmp_path, files))
    assert (only.ways, only.shared_cpus, str(only)) == (None, (0,), "L2 1.25 MiB")
