"""Results that are compared wherever the same work is done again, and what a wrong one claims.

A sample that computed something else than expected keeps both values, and its ``ok`` is false: no
time of it is used. What its experiment expects is its first result, which may be the wrong one:
`perflib.framework.wrong` takes what most cores computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perflib.framework.schema import Column
from perflib.model.claim import read_claims

if TYPE_CHECKING:
    from perflib.model.finding import Finding

_CLAIMS = read_claims(__file__)

CORE_WRONG = _CLAIMS["core_wrong"]
CORES_WRONG = _CLAIMS["cores_wrong"]  # one of several, and which is not known
NODE_WRONG = _CLAIMS["node_wrong"]  # in a farm
WRONG = (CORE_WRONG.name, CORES_WRONG.name)
SECOND_OPINION = "second_opinion"  # of another program; its effect: the failures
WRONG_TIMES = 2  # rounds, or runs, in which it must be wrong: no single sample decides

RESULTS = (
    Column("expected", "text", "", "result expected, hexadecimal; empty: it is right"),
    Column("found", "text", "", "result found in its place; empty: it is right"),
)
SAMPLE = "sample"  # among the columns of equal work: the sample's number within its trial


def is_wrong(one: Finding) -> bool:
    """Whether a finding reports a wrong result, certain (it is supported) or not.

    A second opinion is inconclusive without any failure, too: where tests did not end.
    """
    failed = one.of.name == SECOND_OPINION and one.effect > 0
    return (failed or one.of.name in WRONG) and one.verdict != "refuted"


def results(expected: Sequence[Any], found: Sequence[Any]) -> dict[str, list[str | None]]:
    """The two columns of a trial, of numbers or of hexadecimal texts; none where all is right.

    >>> results([7, 8], [7, 9])
    {'expected': [None, '0x8'], 'found': [None, '0x9']}
    """
    pairs = [
        (one, two) if one != two else (None, None) for one, two in zip(expected, found, strict=True)
    ]
    if all(one is None for one, _ in pairs):
        return {}
    columns = ([_text(value) for value in values] for values in zip(*pairs, strict=True))
    return dict(zip(("expected", "found"), columns, strict=True))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return f"0x{value}" if isinstance(value, str) else f"{int(value) % 2**64:#x}"
