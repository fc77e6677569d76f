"""What a sweep over the distance of two buffers can claim, of any function."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import Claim

__all__ = ["ALIASES", "ALIASES_SHARED", "SLOWEST"]

ALIASES = Claim(
    name="aliases",
    kind="anomaly",
    subject="{function} predicted",
    quantity="additional time at the predicted offsets, compared with far ones at the same places "
    "in a cache line",
    unit="percent",
    exact="{function} takes more than {threshold:g} % longer where loads are predicted to meet "
    "earlier stores in the low 12 bits of their addresses",
    plain={
        "supported": "{function} loses time where its buffers are predicted to alias: {estimate}",
        "refuted": "{function} loses nothing where its buffers are predicted to alias: {estimate}",
        "inconclusive": "whether {function} loses time where its buffers are predicted to alias "
        "stays open: {estimate}",
    },
    together={
        "refuted": "{count} functions lose nothing where their buffers are predicted to alias "
        "(widest interval {widest})",
    },
    reasons={
        "no_interval": "It takes two rounds or more, with usable samples of offsets just above a "
        "multiple of 4096 and of offsets far from one that have the same place in a cache line.",
        "excluded": "It is {high:.2g} % at most.",
    },
)

ALIASES_SHARED = beside_sibling(ALIASES)

SLOWEST = Claim(
    name="slowest",
    kind="description",
    subject="{function}",
    quantity="additional time at the slowest offset, compared with the median of the others",
    unit="percent",
    exact="{function} takes more than {threshold:g} % longer at its slowest offset than at the "
    "median of the others",
    plain={
        "supported": "{function} is slowest at an offset of {offset_bytes} B: {estimate}",
        "refuted": "{function} is as fast at every offset: {estimate} at the slowest",
        "inconclusive": "whether any offset makes {function} slow stays open: {estimate} at "
        "{offset_bytes} B",
    },
    together={
        "refuted": "{count} functions are as fast at every offset (widest interval {widest})",
    },
    reasons={
        "no_interval": "It takes two offsets or more, each with usable samples in four batches of "
        "rounds or more.",
        "excluded": "At no offset is it more than {high:.2g} %.",
        "chance": "Chance brings it about too often (p = {p:.2g}).",
        "offset": "It is the offset of {offset_bytes} B (p = {p:.2g}).",
        "segments_disagree": "Not every third of the run shows it ({segments:list +.1f} %).",
    },
)
