"""The one screen of an investigation as text: readable in 80 columns, by eye and by ear."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from perflib.investigation.conclusion import Conclusion
from perflib.model.sentences import RECORDED

MARKS = {"bad": "!", "note": "-", "good": "+", "open": "?"}
WORDS = {"healthy": "HEALTHY", "cause": "CAUSE FOUND", "undecided": "UNDECIDED", "wrong": "WRONG"}


def screen(found: Conclusion, width: int = 80) -> Iterator[str]:
    """Lines: the headline, at most seven findings, what could not be decided."""
    headline = found.headline.plain

    def wrapped(first: str, text: str) -> Iterator[str]:
        if headline.startswith(RECORDED) and text.startswith(RECORDED):  # once is enough
            text = text.partition(": ")[2]
        yield from textwrap.wrap(
            text,
            width,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        )

    yield from wrapped("", f"{WORDS[found.headline.verdict]}: {headline}")
    yield ""
    if found.spoiled:
        yield "What spoils measurements here, most of all:"
        for line in found.spoiled[:3]:
            yield from wrapped("  - ", line)
        yield ""
    yield "Found:"
    for one in found.findings:
        yield from wrapped(f"  {MARKS[one.mark]} ", one.plain)
        if one.do:
            yield from wrapped("      do: ", one.do)
    if not found.findings:
        yield "  nothing that is certain"
    if found.undecided:
        yield ""
        yield "Not decided, and the run that would decide it:"
        for open_ in found.undecided:
            yield from wrapped(f"  {MARKS['open']} ", open_.plain)
            yield from wrapped("      ", f"{open_.command}  ({open_.minutes:g} min)")
