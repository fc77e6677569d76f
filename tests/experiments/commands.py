"""The command line within a test."""

from __future__ import annotations

import pytest

from perflib.cli import main


def command(*words: str) -> object:
    """The exit status of ``perflib`` with these words; 0 or ``None`` where it succeeds."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code or 0
