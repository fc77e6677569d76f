"""How many single mutations of the code the tests notice.

python -m benchmarks.mutations draw --seed 31 --number 200 > drawn.json
python -m benchmarks.mutations try drawn.json > tried.json    (changes this checkout: use a copy)

A mutation changes one operator, number or condition within a function. It concerns the test files
that import the mutated module or mirror it, those of an experiment's folder, and the one that knows
what stored runs show. It is caught if one of their tests that `make test` runs fails. Each tenth
time the code also stays as it is, as a control, which must survive. A list that was drawn from
another commit is tried on this one by function, kind and place; what no longer exists is drawn anew
in its file.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

TOP = Path(__file__).parents[1]
ROOMS = ("stats", "model", "store", "framework", "measure", "experiments", "instruments")
TEST_S = 60  # of one test: one that lasts longer waits for ever, or is too slow to tell
MUTATION_S = 240.0  # of all tests that concern a mutation
CONTROL_EVERY = 10
MAX_FILES = 6  # test files tried for a mutation, those nearest to its module first
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*"}
MEMBERSHIP = {"in": "not in", "not in": "in", "is": "is not", "is not": "is"}


@dataclass(frozen=True)
class Mutation:
    """What is changed: the ``place``-th mutation of a kind within a function."""

    file: str
    function: str
    kind: str
    place: int
    line: int
    before: str
    after: str


def mutations(path: Path) -> Iterator[tuple[Mutation, str]]:
    """All mutations of a module, each with the mutated source."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    raw = source.encode()

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    counted: Counter[tuple[str, str]] = Counter()
    for function, node in _nodes(ast.parse(source), ""):
        for kind, start, end, new in _changes(node, raw, at):
            place = counted[function, kind]
            counted[function, kind] += 1
            changed = (raw[:start] + new.encode() + raw[end:]).decode()
            number = raw.count(b"\n", 0, start)
            before, after = source.splitlines()[number], changed.splitlines()[number]
            where = str(path.relative_to(TOP))
            yield Mutation(where, function, kind, place, number + 1, before, after), changed


def _nodes(tree: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """What runs within functions: no annotations, no errors' texts, no docstrings."""
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield from _nodes(node, f"{function}.{node.name}".lstrip("."))
            elif isinstance(node, ast.AST) and not isinstance(node, ast.Raise | ast.JoinedStr):
                if function:
                    yield function, node
                yield from _nodes(node, function)


def _changes(node: Any, raw: bytes, at: Any) -> Iterator[tuple[str, int, int, str]]:
    def between(left: Any, right: Any, table: dict[str, str]) -> Iterator[tuple[int, int, str]]:
        start, end = at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)
        text = raw[start:end].decode()
        for old in sorted(table, key=len, reverse=True):
            if found := re.search(rf"(?<![\w*/<>=!]){re.escape(old)}(?![\w*/=])", text):
                yield start + found.start(), start + found.end(), table[old]
                return

    def whole() -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    if isinstance(node, ast.Compare):
        for one in between(node.left, node.comparators[0], COMPARISONS | MEMBERSHIP):
            yield "compare", *one
    elif isinstance(node, ast.BinOp):
        for one in between(node.left, node.right, ARITHMETIC):
            yield "arithmetic", *one
    elif isinstance(node, ast.BoolOp):
        for one in between(node.values[0], node.values[1], {"and": "or", "or": "and"}):
            yield "boolean", *one
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        new = not node.value if isinstance(node.value, bool) else node.value + 1
        yield "constant", *whole(), repr(new)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        test = node.test
        start, end = at(test.lineno, test.col_offset), at(test.end_lineno, test.end_col_offset)
        yield "condition", start, end, f"(not ({raw[start:end].decode()}))"


def concerned(file: str) -> list[str]:
    """The test files that a module concerns, the nearest first."""
    path = Path(file)
    own = TOP / "tests" / path.relative_to("perflib").parent
    dotted = ".".join(path.with_suffix("").parts)
    within, _, name = dotted.rpartition(".")
    direct = re.compile(rf"{re.escape(dotted)}\b|from {re.escape(within)} import .*\b{name}\b")
    while not own.is_dir():
        own = own.parent
    every = sorted((TOP / "tests").rglob("test_*.py"))
    mirror = own / f"test_{name}.py"
    found = [one for one in every if one == mirror or direct.search(one.read_text())]
    if path.parts[1] == "experiments" or not found:
        found += [one for one in every if one.is_relative_to(own) and one not in found]

    def distance(test: Path) -> tuple[bool, bool, str]:
        return (test != mirror, not test.is_relative_to(own), str(test))

    near = sorted(found, key=distance)[:MAX_FILES]
    if path.parts[1] in {"stats", "framework", "experiments"}:
        near.append(TOP / "tests/experiments/test_golden.py")
    return [str(one.relative_to(TOP)) for one in dict.fromkeys(near)]


def modules() -> list[Path]:
    """The modules that are mutated."""
    return sorted(one for room in ROOMS for one in (TOP / "perflib" / room).rglob("*.py"))


def located(wanted: Mutation, rng: random.Random) -> tuple[Mutation, str, bool]:
    """A mutation in this checkout, the mutated source, and whether it is the same one."""
    path = TOP / wanted.file
    if not path.is_file():
        name = Path(wanted.file).name
        alike = [one for one in modules() if one.name == name]
        path = alike[0] if alike else rng.choice(modules())
    found = list(mutations(path)) or list(mutations(TOP / "perflib/stats/intervals.py"))
    for one, source in found:
        if (one.before.strip(), one.after.strip()) == (wanted.before.strip(), wanted.after.strip()):
            return one, source, True
    for one, source in found:
        same = (one.function, one.kind, one.place)
        if same == (wanted.function, wanted.kind, wanted.place):
            return one, source, True
    return *rng.choice(found), False


def outcome(tests: list[str]) -> str:
    """``caught``, ``survived``, or what else happened: pytest in a fork of this process."""
    child = os.fork()
    if not child:
        import pytest

        out = os.open(os.devnull, os.O_WRONLY)
        os.setsid()
        os.dup2(out, 1)
        os.dup2(out, 2)
        options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
        os._exit(int(pytest.main([*options, f"--timeout={TEST_S}", *tests])))
    end = time.monotonic() + MUTATION_S
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return {0: "survived", 1: "caught", 5: "no tests"}.get(code, f"error {code}")
        time.sleep(0.05)
    os.killpg(child, 9)
    os.waitpid(child, 0)
    return "time"


@click.group()
def main() -> None:
    """Draw mutations, and try them."""


@main.command()
@click.option("--seed", default=31)
@click.option("--number", default=200)
def draw(seed: int, number: int) -> None:
    """Draw mutations at random, each function of a module alike."""
    rng = random.Random(seed)
    every = [one for path in modules() for one, _ in mutations(path)]
    json.dump([asdict(one) for one in rng.sample(every, number)], sys.stdout, indent=1)


@main.command("try")
@click.argument("drawn", type=click.Path(exists=True, path_type=Path))
@click.option("--seed", default=31)
def try_(drawn: Path, seed: int) -> None:
    """Try each mutation of a list; one line of JSON each, and the counts at the end."""
    import pandas as pd  # noqa: F401 what every child needs is imported once
    import scipy.stats  # noqa: F401

    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    sys.dont_write_bytecode = True
    for number, record in enumerate(json.loads(drawn.read_text())):
        mutation, source, same = located(Mutation(**record), rng)
        path = TOP / mutation.file
        original = path.read_text()
        tests = concerned(mutation.file)
        if number % CONTROL_EVERY == 0:
            counts[f"control {outcome(tests)}"] += 1
        try:
            path.write_text(source)
            result = outcome(tests)
        finally:
            path.write_text(original)
        counts[result] += 1
        line = {"number": number, "same": same, "outcome": result, **asdict(mutation)}
        print(json.dumps(line), flush=True)
        print(dict(counts), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
