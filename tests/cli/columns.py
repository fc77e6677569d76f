"""What is printed for people fits 80 columns, but for a word that alone is longer."""

from __future__ import annotations


def too_wide(text: str) -> list[str]:
    """The lines of more than 80 columns that could have been shorter."""
    return [line for line in text.splitlines() if len(line) > 80 and len(line.split()) > 1]
