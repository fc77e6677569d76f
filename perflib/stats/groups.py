"""Groups of nodes by what was recorded of them, each named once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_NO_ATTRIBUTES = {"node", "model", "hostname"}
_MAX_VALUES = 8  # different numbers; of more, those above the middle are a group

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that share an attribute's value, and those known to have another.

    ``same`` names further attributes that make the very same group: nothing distinguishes them.
    """

    name: str
    inside: Mask
    outside: Mask
    same: tuple[str, ...] = ()


def groups_of(attributes: pd.DataFrame, least: int) -> list[NodeGroup]:
    """All groups of ``least`` nodes or more, with as many outside; the rack's come first.

    Parameters
    ----------
    attributes
        One row a node, one column an attribute; NaN is unknown.
    """
    names = sorted(
        map(str, set(attributes.columns) - _NO_ATTRIBUTES), key=lambda n: (n != "rack", n)
    )
    found: dict[tuple[bytes, bytes], list[str]] = {}
    masks: dict[tuple[bytes, bytes], tuple[Mask, Mask]] = {}
    for name in names:
        for words, inside, outside in _of_attribute(name, attributes[name], least):
            if min(inside.sum(), outside.sum()) < least:
                continue
            key = inside.tobytes(), outside.tobytes()
            found.setdefault(key, []).append(words)
            masks[key] = inside, outside
    return [NodeGroup(words[0], *masks[key], tuple(words[1:])) for key, words in found.items()]


def _of_attribute(name: str, values: pd.Series[Any], least: int) -> list[tuple[str, Mask, Mask]]:
    known = values.notna().to_numpy()
    numbers = pd.to_numeric(values, errors="coerce")
    if numbers[known].notna().all() and numbers.nunique() > _MAX_VALUES and name != "rack":
        middle = float(numbers.median())
        above = (numbers > middle).to_numpy()
        return [
            (f"{name} above {middle:g}", above & known, ~above & known),
            (f"{name} at most {middle:g}", ~above & known, above & known),
        ]
    text = values.astype(str).to_numpy(object)
    counts = pd.Series(text[known]).value_counts()
    return [
        (f"{name} {value}", (text == value) & known, (text != value) & known)
        for value in sorted(counts.index[counts >= least])
    ]
