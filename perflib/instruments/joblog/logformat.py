"""How a job's log says that an event begins and ends: Athena's ways, and the user's own."""

from __future__ import annotations

from dataclasses import dataclass

from perflib.model.errors import UserError, choose
from perflib.model.expressions import Expression

_EXAMPLE = {
    "begin": r"start processing event #(?P<event>\d+)",
    "end": r"Event nr\. (?P<event>\d+) took (?P<seconds>[\d.]+) s",
}
_GROUPS = {"begin": ("event", "job"), "end": ("event", "job", "seconds")}


@dataclass(frozen=True)
class LogFormat:
    r"""How a job's log says that an event begins and ends: two regular expressions.

    Each is searched for anywhere in a line (`perflib.model.expressions`). No line may match both.

    Parameters
    ----------
    begin
        Has the named group ``event``: the event's number or name. May have ``job``, where several
        jobs write one log and the same event may run in two of them.
    end
        May have ``event``; without it the line ends the event that is open, so that events come
        one after the other (within each job). May have ``seconds``, the job's own timing. Has
        ``job`` if ``begin`` has it.

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
        begin, end = self.expressions()
        if "event" not in begin.groups:
            msg = (
                f"the expression for an event's begin lacks the named group 'event': "
                f"{self.begin!r}. For example: {_EXAMPLE['begin']}"
            )
            raise UserError(msg)
        if ("job" in begin.groups) != ("job" in end.groups):
            msg = (
                "the named group 'job' stands in one expression only: it is needed in both, or in "
                f"neither. Begin: {self.begin!r}, end: {self.end!r}"
            )
            raise UserError(msg)

    @property
    def one_at_a_time(self) -> bool:
        """Whether an end does not name its event, so that a job's events cannot overlap."""
        return "event" not in _compile("end", self.end).groups

    def expressions(self) -> tuple[Expression, Expression]:
        """Both, to be searched for."""
        return _compile("begin", self.begin), _compile("end", self.end)


def _compile(which: str, expression: str) -> Expression:
    what = f"the expression for an event's {which}"
    try:
        compiled = Expression(expression, what)
    except UserError as error:
        msg = f"{error}\nFor example: {_EXAMPLE[which]}"
        raise UserError(msg) from None
    for group in compiled.groups:
        if group not in _GROUPS[which]:
            unknown = choose("named group", group, _GROUPS[which])
            msg = f"{what}, {expression!r}: {unknown}. For example: {_EXAMPLE[which]}"
            raise UserError(msg)
    return compiled


FORMATS = {
    "athena": LogFormat(_EXAMPLE["begin"], r"done processing event #(?P<event>\d+)"),
    # No 'event' in the end: G4SimTimer counts from one where the event loop counts from zero.
    "kv": LogFormat(
        _EXAMPLE["begin"], r"G4SimTimer\s+\w+\s+Event nr\. \d+ took (?P<seconds>[\d.e+-]+) s"
    ),
}
"""Athena's event loop (any job of it), and KV, whose simulation also times each event itself."""
