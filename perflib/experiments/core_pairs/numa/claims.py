"""What ``numa`` can claim beside what any matrix of cores can."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["DISTANCES", "OWN"]

DISTANCES = Claim(
    name="distances",
    kind="description",
    subject="distances",
    quantity="share of the comparisons that the latencies and the kernel's distances put into the "
    "same order",
    unit="percent of comparisons",
    exact="cores that are farther apart by the kernel's distances are never nearer",
    plain={
        "supported": "latencies follow the kernel's distances: what it calls farther is never "
        "nearer",
        "refuted": "latencies do not follow the kernel's distances: {against:.2g} % of the "
        "comparisons go the other way",
        "inconclusive": "whether latencies follow the kernel's distances stays open: only one "
        "class of distance was found",
    },
    reasons={
        "in_order": "Where the kernel says farther, it is at least as far.",
        "against": "{against:.2g} % of the comparisons are the other way round.",
        "one_class": "One class of distance was found: there is nothing to compare.",
    },
)

OWN = Claim(
    name="own",
    kind="description",
    subject="own",
    quantity="additional latency of memory that another core of the group touched first, compared "
    "with memory that the core touched itself",
    unit="percent",
    exact="memory that another core of its group touched first is more than {threshold:g} % "
    "farther than a core's own",
    plain={
        "supported": "a core's own memory is nearer than that of its neighbours: theirs takes "
        "{estimate} longer",
        "refuted": "a core's own memory is as far as that of its neighbours: the difference is "
        "{estimate}",
        "inconclusive": "whether a core's own memory is nearer than that of its neighbours stays "
        "open: {estimate}",
    },
)
