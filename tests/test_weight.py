"""Lines by room, as CONTRIBUTING.md has them. Growth is printed; nothing fails for it.

python -m tests.test_weight    prints the table for CONTRIBUTING.md
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.test_packaging import ROOMS, TOP, name_of

SHOWN_FROM = 200  # lines


def lines() -> Counter[str]:
    """Lines of Python by room of perflib, and of the tests and benchmarks."""
    counts: Counter[str] = Counter()
    for top in ("perflib", "tests", "benchmarks"):
        for path in sorted((TOP / top).rglob("*.py")):
            number = path.read_text(encoding="utf-8").count("\n")
            counts[top] += number
            if top == "perflib" and "." in name_of(path):
                counts[name_of(path).split(".")[1]] += number
    return counts


def listed() -> dict[str, int]:
    """The table of CONTRIBUTING.md."""
    text = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|$", text, re.MULTILINE)
    return {name: int(number.replace(",", "")) for name, number in rows}


def test_the_table_of_lines_names_every_room(capsys: pytest.CaptureFixture[str]) -> None:
    now, then = lines(), listed()
    assert then.keys() == {*ROOMS, "perflib", "tests", "benchmarks"} - {"__main__"}
    with capsys.disabled():
        for name, number in then.items():
            if abs(now[name] - number) >= SHOWN_FROM:
                print(f"\nlines of {name}: {now[name]:,}; CONTRIBUTING.md says {number:,}", end="")


if __name__ == "__main__":
    table = lines()
    print("| room | lines |\n| -- | --: |")
    for room in [*(one for one in ROOMS if one != "__main__"), "perflib", "tests", "benchmarks"]:
        print(f"| `{room}` | {table[room]:,} |")
