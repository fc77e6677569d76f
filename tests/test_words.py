"""The field's words: house words of earlier versions stay out of names, prose and sentences.

The tests follow the same rule. docs/glossary.md defines the words of ours that remain.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.test_packaging import MODULES, TOP, name_of

# House words, each with the field's.
INSTEAD = {
    "told": "reported, classified, distinguishable",
    "untold": "unclassified",
    "tells": "reports, shows",
    "luck": "process-to-process variation",
    "sham": "control",
    "unmet": "violated",
    "seldom": "rarely; in names the quantity and unit",
    "stretch": "segment",
    "stretches": "segments",
    "dear": "costly",
    "dearer": "costlier",
    "door": "interface",
    "doors": "interfaces",
    "beside": "under, next to, compared with",
    "lies": "is at, is placed",
    "laid": "placed, mapped",
}
# Names of tables that are shown side by side may say so. ("Arm" is a processor, and not here.)
NOT_IN_NAMES = {"beside"}
PHRASES = {
    "held against": "compared with",
    "left open": "inconclusive",
    "goes on": "resumes, continues",
    "go on": "resume, continue",
    "without a core": "run-queue delay",
}
WORD = re.compile(rf"\b(?:{'|'.join([*INSTEAD, *PHRASES])})\b", re.IGNORECASE)
# In what users read (a class of CSS may be "perflib-beside").
SPOKEN = re.compile(r"(?<!-)\b(?:told|tells|beside|lies|laid)\b", re.IGNORECASE)
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What a module calls its functions, classes, parameters and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def prose(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Docstrings and comments."""
    for node in ast.walk(tree):
        documented = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def sentences(value: Any) -> Iterator[tuple[int, str]]:
    """What users read: strings with a blank, of a module by their lines, or the values of TOML."""
    if isinstance(value, ast.AST):
        for node in ast.walk(value):
            if isinstance(node, ast.Constant) and " " in str(node.value):
                yield node.lineno, str(node.value)
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from sentences(one)
    elif " " in str(value):
        yield 0, str(value)


def found(path: Path) -> list[str]:
    """Each house word of a module: its line, and the field's word."""
    tree = ast.parse(path.read_text())
    here = []
    for line, name in names(tree):
        parts = {part.lower() for part in PARTS.findall(name)} - NOT_IN_NAMES
        here += [(line, part) for part in sorted(parts & INSTEAD.keys())]
    for line, text in prose(path, tree):
        here += [(line, word.lower()) for word in WORD.findall(text)]
    for line, text in sentences(tree):
        here += [(line, word.lower()) for word in SPOKEN.findall(text)]
    words = INSTEAD | PHRASES
    return [f"{path.name}:{line}: {word!r}: {words[word]}" for line, word in sorted(set(here))]


TESTS = Path(__file__).parent
ROOMS_HERE = sorted({name_of(one).split(".")[1] for one in MODULES if "." in name_of(one)})


@pytest.mark.parametrize("room", ROOMS_HERE)
def test_no_house_word_is_in_a_name_a_docstring_or_a_comment(room: str) -> None:
    modules = [one for one in MODULES if f"{name_of(one)}.".startswith(f"perflib.{room}.")]
    assert [word for one in modules for word in found(one)] == []


def test_no_house_word_is_in_a_sentence_of_a_toml_file() -> None:
    read = {path: tomllib.loads(path.read_text()) for path in (TOP / "perflib").rglob("*.toml")}
    spoken = [(path.name, text) for path, one in read.items() for _, text in sentences(one)]
    assert [(name, text) for name, text in spoken if SPOKEN.search(text)] == []


@pytest.mark.parametrize(
    "modules", ["*.py", *sorted(f"{one.name}/**/*.py" for one in TESTS.glob("[a-z]*/"))]
)
def test_no_house_word_is_in_the_tests(modules: str) -> None:
    checked = {*TESTS.glob(modules)} - {Path(__file__)}  # this one holds the table
    assert [word for one in sorted(checked) for word in found(one)] == []


def test_a_house_word_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""What the table told."""\nMostDear = 1  # held against it\nwarm = alarm = 2\n'
        'says = f"{warm} beside it" + "beside" + "perflib-beside it"\n'
    )
    assert found(module) == [
        "module.py:1: 'told': reported, classified, distinguishable",
        "module.py:2: 'dear': costly",
        "module.py:2: 'held against': compared with",
        "module.py:4: 'beside': under, next to, compared with",
    ]
