"""The list of slow tests names tests that there are."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.slow import SLOW

ROOT = Path(__file__).parents[1]


def test_every_listed_function_exists() -> None:
    listed = SLOW.read_text(encoding="utf-8").splitlines()
    assert listed == sorted(set(listed))
    by_file = defaultdict(list)
    for name in listed:
        file, _, function = name.partition("::")
        by_file[file].append(function)
    for file, functions in by_file.items():
        source = (ROOT / file).read_text(encoding="utf-8")
        gone = [one for one in functions if f"def {one}(" not in source]
        assert not gone, f"tests/slow.txt lists what {file} no longer has: {gone}"
