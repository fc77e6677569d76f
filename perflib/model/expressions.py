"""A user's regular expression: compiled, and searched with a time limit.

An expression such as ``(a|aa)+$`` takes hours on forty letters, and ``(a{9999}){9999}`` needs more
memory than there is. Every expression that comes from a user is an `Expression`, so that it ends
in a sentence. The package ``regex`` knows what Python's ``re`` knows, and can stop a search.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import regex

from perflib.model.errors import UserError

_MAX_TEXT_S = 1.0  # of this process's CPU time, for one text: a busy machine does not trip it
_MAX_TEXTS_S = 20.0  # for all texts of `Expression.finds` together
_MAX_PARTS = 100_000  # of an expression written out: it takes 0.3 s and 40 MB to compile
_MAX_SHOWN_CHARS = 80
_COUNT = re.compile(r"\{(\d*),?(\d*)\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]?", re.DOTALL)


class Expression:
    r"""A regular expression, looked for anywhere in a text.

    Parameters
    ----------
    text
        The expression, in the notation of Python's ``re``.
    what
        What errors call it.

    Attributes
    ----------
    groups : tuple of str
        The names of its named groups.

    Raises
    ------
    UserError
        It is no regular expression, or its repeats, written out, are too many.

    Examples
    --------
    >>> Expression(r"event (?P<number>\d+)", "job_begin").search("an event 73")["number"]
    '73'
    >>> Expression("(unclosed", "threads")
    Traceback (most recent call last):
    perflib.model.errors.UserError: threads is no regular expression: missing ) at position 9
      (unclosed
               ^
    """

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what = text, what
        self._spent_s = 0.0
        if _parts(text) > _MAX_PARTS:
            msg = (
                f"{what}, {_cut(text)!r}, is too large: its repeats, written out, are more than "
                f"{_MAX_PARTS} parts. Use smaller numbers in braces, or +"
            )
            raise UserError(msg)
        try:
            self._pattern = regex.compile(text)
        except (regex.error, RecursionError, OverflowError, ValueError) as error:
            place = ""
            position = getattr(error, "pos", None)  # its types know nothing of it
            if position is not None and "\n" not in text and len(text) <= _MAX_SHOWN_CHARS:
                place = f"\n  {text}\n  {' ' * position}^"
            msg = f"{what} is no regular expression: {error}{place or f': {_cut(text)!r}'}"
            raise UserError(msg) from None
        self.groups = tuple(self._pattern.groupindex)

    def search(self, text: str) -> regex.Match[str] | None:
        """Where it is found first, if it is.

        Raises
        ------
        UserError
            That took more than a second of CPU time.
        """
        try:
            return self._pattern.search(text, timeout=_MAX_TEXT_S)
        except TimeoutError:
            msg = f"{self._too_slow()} {_MAX_TEXT_S:g} s on {_cut(text)!r}{_ADVICE}"
            raise UserError(msg) from None
        except MemoryError:
            msg = f"{self._too_slow('more memory')} than there is on {_cut(text)!r}{_ADVICE}"
            raise UserError(msg) from None

    def finds(self, texts: Iterable[str]) -> list[bool]:
        """In which of the texts it is found.

        Raises
        ------
        UserError
            As of `search`; or all texts together, of this call and those before, took too long.
        """
        found = []
        for text in texts:
            begun = time.process_time()
            found.append(self.search(text) is not None)
            self._spent_s += time.process_time() - begun
            if self._spent_s > _MAX_TEXTS_S:
                texts_s = f"{_MAX_TEXTS_S:g} s on {len(found)} texts"
                msg = f"{self._too_slow()} {texts_s}, the last {_cut(text)!r}{_ADVICE}"
                raise UserError(msg)
        return found

    def _too_slow(self, taken: str = "longer than") -> str:
        return f"{self._what}: the regular expression {_cut(self._text)!r} took {taken}"


_ADVICE = ": simplify it (repeats within repeats, such as (a+)+, take that long)"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


def _parts(text: str) -> int:
    r"""How many parts an expression has when its counted repeats are written out, as compiled.

    >>> _parts("ab{3}"), _parts("(ab{3}[{9}]){10,20}"), _parts(r"\\{5}\({2}")
    (4, 100, 7)
    """
    open_groups, total, last, at = [0], 0, 0, 0
    while at < len(text):
        if count := _COUNT.match(text, at):
            # int() takes no more than 4300 digits, and five are too many already
            times = max([1, *(int(digits[:9]) for digits in count.groups() if digits)])
            total, last, at = total + last * (times - 1), last * times, count.end()
            continue
        letter = text[at]
        if letter == "(":
            open_groups.append(total)
            total, last = 0, 0
        elif letter == ")" and len(open_groups) > 1:
            last = total
            total += open_groups.pop()
        else:
            total, last = total + 1, 1
        if letter == "[" and (whole := _CLASS.match(text, at)):
            at = whole.end()
        else:
            at += 2 if letter == "\\" else 1
    return total + sum(open_groups)
