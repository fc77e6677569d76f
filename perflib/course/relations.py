"""Relations that hold on any machine: an answer next to what this run found.

They serve `perflib.course.items.Relation` and `Prediction`; each takes a run as its evidence.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perflib.course.items import Judged, Measured, agree, number
from perflib.model.errors import UserError, choose
from perflib.model.finding import Finding

OPEN = "open"  # the answer where a run cannot tell
NO_VERDICT = ("yes", "gives an answer that is no verdict")  # a typical wrong answer
_VERDICTS = ("supported", "refuted", "inconclusive")


def _finding(run: Any, claims: tuple[str, ...], about: dict[str, Any]) -> Finding | None:
    """The first finding of the first of these claims that the run has an estimate of."""
    for claim in claims:
        for finding in run.findings.where(claim=claim, **about):
            if math.isfinite(finding.effect):
                one: Finding = finding
                return one
    return None


def found(
    *claims: str, what: str, scale: float = 1.0, **about: Any
) -> Callable[[Any], Measured | str]:
    """The estimate of a claim in a run, with its interval, times ``scale``.

    Parameters
    ----------
    claims
        The first of them that the run has an estimate of counts.
    what
        What it is, in a few words.
    about
        Which subject: ``cache="L1d"``.
    """

    def measured(run: Any) -> Measured | str:
        finding = _finding(run, claims, about)
        if finding is None or not math.isfinite(finding.low):
            return f"this run has no interval of {what}"
        low, value, high = (scale * end for end in (finding.low, finding.effect, finding.high))
        return Measured(low, value, high, what)

    return measured


def reads(measured: Callable[[Any], Measured | str], unit: str) -> Callable[..., Judged]:
    """A number that is read off a run is in the run's interval (within a tenth).

    Where the run has none, the answer is ``"open"``.
    """

    def holds(answer: Any, run: Any) -> Judged:
        one, given = measured(run), str(answer).strip().lower()
        if isinstance(one, str):
            return Judged(float(given == OPEN), f"{one}: the answer is {OPEN!r}")
        if given == OPEN:
            return Judged(0.0, f"the run has an interval of {one.what}")
        value = number(answer)
        agrees, says = agree(value, one, unit)
        return Judged(float(agrees), f"{value:g} {unit}: {says}")

    return holds


def verdict(*claims: str, **about: Any) -> Callable[..., Judged]:
    """The verdict that follows from the run's interval; where there is none: inconclusive."""

    def holds(answer: Any, run: Any) -> Judged:
        given = str(answer).strip().lower()
        if given not in _VERDICTS:
            raise UserError(choose("verdict", str(answer), _VERDICTS))
        finding = _finding(run, claims, about)
        right = finding.verdict if finding else "inconclusive"
        why = sentence(finding) if finding else "this run has no estimate of it"
        if given == right:
            return Judged(1.0, f"{right}: {why}")
        return Judged(0.0, f"{given} does not follow from the interval: {why}")

    return holds


def estimated(findings: Iterable[Any], what: str, none: str) -> Measured | str:
    """The first finding that has an interval, as a measured quantity.

    Parameters
    ----------
    findings
        Those that may answer, the best first.
    what
        What was measured, in a few words.
    none
        The sentence that is given where no finding has an interval.
    """
    for one in findings:
        if all(math.isfinite(value) for value in (one.low, one.effect, one.high)):
            return Measured(one.low, one.effect, one.high, what)
    return none


def most_taken(run: Any) -> Measured | str:
    """What other tasks take from the core from which they take most."""
    taken = sorted(run.findings.where(claim="taken"), key=lambda one: -one.effect)
    what = f"taken from cpu{taken[0].about['cpu']}" if taken else ""
    return estimated(taken, what, "this run has no account of waiting")


def ratio(above: Any, below: Any, column: str, what: str) -> Measured:
    """How many times a row of a table is another one, with the ends that are farthest apart.

    Parameters
    ----------
    above, below
        The two rows.
    column
        Of the quantity; ``COLUMN_low`` and ``COLUMN_high`` are the ends of its interval.
    what
        What it is, in a few words.
    """
    low, high = f"{column}_low", f"{column}_high"
    least, most = above[low] / below[high], above[high] / below[low]
    return Measured(float(least), float(above[column] / below[column]), float(most), what)


def latency_ratio(above: str, below: str, what: str) -> Callable[[Any], Measured | str]:
    """How many times one line of the table of latencies is another."""

    def measured(run: Any) -> Measured | str:
        table = run.table("latencies").set_index("what")
        if not {above, below} <= set(table.index):
            return f"this run has not measured {above} and {below}"
        found = ratio(table.loc[above], table.loc[below], "median_ns", what)
        if not all(map(math.isfinite, found.ends)):
            return Measured(found.value, found.value, found.value, what)
        return found

    return measured


def parts(answer: Any, count: int, asked: str) -> list[Any]:
    """The parts of an answer that has several.

    Raises
    ------
    UserError
        It has not so many; ``asked`` says what is to be given.
    """
    try:
        found = list(answer)
    except TypeError:
        found = []
    if len(found) != count:
        raise UserError(asked)
    return found


def near(low: float, high: float, right: str, wrong: str) -> Callable[..., Judged]:
    """The relation of an exercise whose number does not depend on the machine.

    Parameters
    ----------
    low, high
        Within these the answer is right.
    right, wrong
        What is said then, and otherwise.
    """

    def holds(answer: Any, *_: Any) -> Judged:
        inside = low <= number(answer) <= high
        return Judged(float(inside), right if inside else wrong)

    return holds


def word(answer: Any, known: Mapping[str, str], what: str = "answer") -> str:
    """An answer in words as the lesson's own word for it.

    Parameters
    ----------
    answer
        As a student writes it: case and spaces around it do not count.
    known
        What may be written, and which of the lesson's words it means.
    what
        What is asked for.

    Raises
    ------
    UserError
        It is none of these.
    """
    given = " ".join(str(answer).lower().split())
    if given not in known:
        raise UserError(choose(what, given, known))
    return known[given]


def percent_read(given: float, found: float, within: float, says: str, hint: str) -> Judged:
    """A percentage read off a table, within some points; half for one that is a ratio."""
    if abs(given - found) <= within:
        return Judged(1.0, says)
    if abs(100 * given - found) <= within:
        return Judged(0.5, f"{says}: yours is not in percent")
    return Judged(0.0, f"{says}: {hint}")


def sentence(one: Any) -> str:
    """What a finding says, to stand within one of `Worksheet.check`, which names the recording."""
    return str(replace(one, recorded="").plain).rstrip(".")


def places_used(draw: random.Random) -> tuple[list[int], int]:
    """A list of pages or lines as they are used, and how many of them are held: at random."""
    pages = draw.randint(2, 24)
    return [draw.randrange(pages) for _ in range(draw.randint(20, 80))], draw.randint(1, 20)


def missed_lru(order: Sequence[int], places: int = 64) -> float:
    """Share of misses in the second half of a list, least recently used replaced.

    Parameters
    ----------
    order
        Pages or lines, as they are used.
    places
        How many of them a TLB or cache holds.
    """
    kept: OrderedDict[int, None] = OrderedDict()
    misses, half = 0, len(order) // 2
    for place, one in enumerate(order):
        misses += one not in kept and place >= half
        kept[one] = None
        kept.move_to_end(one)
        if len(kept) > places:
            kept.popitem(last=False)
    return misses / (len(order) - half)
