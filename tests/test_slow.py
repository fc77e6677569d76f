"""The list of slow tests names tests that there are, and their run ends where its time is over."""

from __future__ import annotations

import subprocess
import sys
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


def test_after_its_time_a_run_begins_no_test_and_says_what_it_left_out() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "2", "--end-after", "0", str(Path(__file__))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "NOT REACHED tests/test_slow.py: 2 tests" in done.stdout
    assert "passed" not in done.stdout
