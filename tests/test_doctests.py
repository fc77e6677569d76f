"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
WITH_EXAMPLES = sorted(
    path for path in (TOP / "perflib").rglob("*.py") if "\n    >>> " in path.read_text()
)


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(TOP)))
def test_examples(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(TOP).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.failed == 0
