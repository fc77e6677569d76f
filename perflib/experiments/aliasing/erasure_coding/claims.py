"""What ``erasure_coding`` can claim."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import Claim

__all__ = ["ALIGNED", "BY_LAYOUT", "CHASING", "SHARED_BY_LAYOUT", "SHIFTED", "SLOWED"]

_ALL = "{each[implementation]:list}"
_REASONS = {
    "segments_disagree": "Not every third of the run shows it ({segments:list +.1f} %).",
    "too_short": "The run is too short to be split into thirds.",
    "one_set": "{blocks} blocks at one place in their pages ask for one set of the L1 data cache, "
    "which holds {ways} lines.",
}

ALIGNED = Claim(
    name="aligned",
    kind="anomaly",
    subject="{implementation}",
    quantity="additional time of aligned blocks, compared with staggered ones",
    unit="percent",
    exact="{implementation} takes more than {threshold:g} % longer when all blocks begin at a page "
    "than when no two agree in the low 12 bits of their addresses",
    plain={
        "supported": "{implementation} loses time to blocks that all begin at a page: {estimate}",
        "refuted": "{implementation} loses nothing to blocks that all begin at a page: {estimate}",
        "inconclusive": "whether blocks that all begin at a page cost {implementation} time stays "
        "open: {estimate}",
    },
    together={
        "refuted": f"Blocks that all begin at a page cost {_ALL} nothing (widest: {{widest}})",
        "inconclusive": "Whether blocks that all begin at a page cost time stays open for "
        f"{_ALL} "
        "(widest interval: {widest})",
    },
    reasons=_REASONS,
)

CHASING = Claim(
    name="chasing",
    kind="anomaly",
    subject="{implementation} chasing",
    quantity="additional time where loads alias with stores just made",
    unit="percent",
    exact="{implementation} takes more than {threshold:g} % longer when loads agree in their low "
    "12 bits with stores just made than when they do not",
    plain={
        "supported": "{implementation} loses time to loads that alias with stores: {estimate}",
        "refuted": "{implementation} loses nothing to loads that alias with stores: {estimate}",
        "inconclusive": "whether loads that alias with stores cost {implementation} time stays "
        "open: {estimate}",
    },
    together={
        "refuted": f"Loads that alias with stores cost {_ALL} nothing (widest: {{widest}})",
        "inconclusive": "Whether loads that alias with stores cost time stays open for "
        f"{_ALL} "
        "(widest interval: {widest})",
    },
    reasons=_REASONS,
)

SHIFTED = Claim(
    name="shifted",
    kind="description",
    subject="{implementation} shifted",
    quantity="change of the time where all blocks are shifted by half a page (control)",
    unit="percent",
    exact="{implementation} takes more than {threshold:g} % longer, or shorter, when all blocks "
    "are shifted together by half a page",
    plain={
        "supported": "{implementation} changes where nothing should change it: {estimate}",
        "refuted": "{implementation} is as fast where all blocks are shifted: {estimate}",
        "inconclusive": "the control of {implementation} stays open: {estimate}",
    },
    together={
        "refuted": f"The control holds for {_ALL} (widest interval: {{widest}})",
        "inconclusive": f"The control stays open for {_ALL} (widest interval: {{widest}})",
    },
    direction="beyond",
    reasons=_REASONS,
)

BY_LAYOUT = {"aligned": ALIGNED, "chasing": CHASING, "shifted": SHIFTED}
SHARED_BY_LAYOUT = {"aligned": beside_sibling(ALIGNED), "chasing": beside_sibling(CHASING)}

SLOWED = Claim(
    name="slowed",
    kind="description",
    subject="{implementation} speed shared",
    quantity="additional time beside a busy sibling, compared with a core that is alone",
    unit="percent",
    exact="{implementation} takes more than {threshold:g} % longer while a sibling of the core "
    "works, with staggered blocks",
    plain={
        "supported": "{implementation} encodes {alone_mb_per_s:.0f} MB/s on a core that is alone "
        "and {shared_mb_per_s:.0f} MB/s beside a busy sibling: {estimate}",
        "refuted": "{implementation} is as fast beside a busy sibling: {estimate}",
        "inconclusive": "what a busy sibling takes from {implementation} stays open: {estimate}",
    },
)
