"""A command called within the test's own process."""

from __future__ import annotations

import pytest

from perflib.cli import main


def call(*words: str) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as end:
        main(words)
    code = end.value.code
    assert isinstance(code, int)
    return code
