"""Which events of a log are wanted, and which class each one is of."""

from __future__ import annotations

import re

from perflib.model.errors import UserError
from perflib.model.expressions import Expression

_MEANS_ITSELF = re.compile(r"[^\\()\[\]{}*+?^$.]+")


class Wanted:
    r"""The events whose whole name, or number, a regular expression matches.

    Each event is of a class: what the named group ``event`` matches of its name, and without such
    a group the name itself.

    Parameters
    ----------
    text
        The expression: ``73``, ``Zee|ttbar``, ``(?P<event>[A-Za-z]+)_\d+``. An event that is
        called exactly so is wanted, too.

    Attributes
    ----------
    names : tuple of str
        All names that it can match, where they are written out; else empty.
    by_class : bool
        Whether classes are fewer than events: there is a group, or names are written out.

    Raises
    ------
    UserError
        It is no regular expression, or has a group that means nothing here.

    Examples
    --------
    >>> wanted = Wanted(r"(?P<event>Zee|ttbar)_\d+")
    >>> wanted.class_of("Zee_17"), wanted.class_of("Wenu_17")
    ('Zee', None)
    >>> Wanted("73").class_of(73)
    '73'
    """

    def __init__(self, text: str) -> None:
        what = "the expression for wanted events"
        self._text = text
        expression = Expression(text, what)  # by itself, so that an error shows what was written
        for group in expression.groups:
            if group != "event":
                msg = f"{what}, {text!r}: the only named group is 'event', not {group!r}"
                raise UserError(msg)
        self._has_group = bool(expression.groups)
        self._expression = Expression(rf"\A(?:{text})\Z", what)
        self.names = tuple(text.split("|")) if _MEANS_ITSELF.fullmatch(text) else ()
        self.by_class = self._has_group or bool(self.names)

    def class_of(self, event: int | str) -> str | None:
        """The class of a wanted event; None: it is not wanted."""
        name = str(event)
        if name == self._text:
            return name
        match = self._expression.search(name)
        if match is None:
            return None
        return (match["event"] or name) if self._has_group else name
