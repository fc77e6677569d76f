"""How a job's log says that an event begins and ends: Athena's ways, and the user's own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perflib.errors import UserError, choose

__all__ = ["FORMATS", "LogFormat"]

_EXAMPLE = {
    "begin": r"start processing event #(?P<event>\d+)",
    "end": r"Event nr\. (?P<event>\d+) took (?P<seconds>[\d.]+) s",
}
_GROUPS = {"begin": ("event",), "end": ("event", "seconds")}


@dataclass(frozen=True)
class LogFormat:
    r"""How a job's log says that an event begins and ends: two regular expressions.

    Each is looked for anywhere in a line (``re.search``), and no line may match both.

    Parameters
    ----------
    begin
        Has the named group ``event``: the event's number or name.
    end
        May have ``event``; without it the line ends the event that is open, so that events come
        one after the other. May have ``seconds``, the job's own timing.

    Raises
    ------
    UserError
        No regular expression, a group that is missing or that means nothing here.

    Examples
    --------
    >>> LogFormat(r"begin of (?P<event>\w+)", r"end of (?P<event>\w+) after (?P<seconds>\S+) s")
    LogFormat(begin='begin of (?P<event>\\w+)', end='end of (?P<event>\\w+) after (?P<seconds>\\S+) s')
    """  # noqa: E501

    begin: str
    end: str

    def __post_init__(self) -> None:
        """Check both expressions."""
        if "event" not in _compile("begin", self.begin).groupindex:
            msg = (
                f"the expression for an event's begin lacks the named group 'event': "
                f"{self.begin!r}. For example: {_EXAMPLE['begin']}"
            )
            raise UserError(msg)
        _compile("end", self.end)


def _compile(which: str, expression: str) -> re.Pattern[str]:
    what = f"the expression for an event's {which}"
    try:
        pattern = re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        place = f"\n  {expression}\n"
        if isinstance(error, re.error) and error.pos is not None and "\n" not in expression:
            place += f"  {' ' * error.pos}^\n"
        msg = f"{what} is no regular expression: {error}{place}For example: {_EXAMPLE[which]}"
        raise UserError(msg) from None
    for group in pattern.groupindex:
        if group not in _GROUPS[which]:
            unknown = choose("named group", group, _GROUPS[which])
            msg = f"{what}, {expression!r}: {unknown}. For example: {_EXAMPLE[which]}"
            raise UserError(msg)
    return pattern


FORMATS = {
    "athena": LogFormat(_EXAMPLE["begin"], r"done processing event #(?P<event>\d+)"),
    # No 'event' in the end: G4SimTimer counts from one where the event loop counts from zero.
    "kv": LogFormat(
        _EXAMPLE["begin"], r"G4SimTimer\s+\w+\s+Event nr\. \d+ took (?P<seconds>[\d.e+-]+) s"
    ),
}
"""Athena's event loop (any job of it), and KV, whose simulation also times each event itself."""
