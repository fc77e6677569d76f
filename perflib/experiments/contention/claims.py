"""What ``contention`` can claim."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["CLAIMS", "FALSE_SHARING", "LOCK", "NEIGHBOURS", "OWN_LINES", "TOGETHER", "UNFAIR"]

_CORES = "CPUs {cpus}"
_REASONS = {
    "one_core": "There is one core only: name two in 'cores', or take a machine with more.",
    "few_valid": "{percent:.0f} % of the samples are valid: in the others a thread did not have "
    "its core all the time.",
    "none_valid": "In hardly any sample all threads had their cores: others use them. Measure when "
    "it is quiet, or longer.",
    "slow_core": "On lines of its own that core does less than the others, too: beyond that "
    "it gets {beyond:interval %} less.",
    "cycles": "With {outside} cycles of each core's own work between two operations.",
}

OWN_LINES = Claim(
    name="own_lines_slower",
    kind="description",
    subject=f"own lines, {_CORES}",
    quantity="additional time that one core takes to count on a line of its own while the others "
    "do, too",
    unit="percent",
    exact="counting on a line of its own, a core takes over {threshold:g} % longer while {count} "
    "cores do, each on its own",
    plain={
        "supported": "cores slow each other down without sharing a line: where {count} count, each "
        "on its own line, one takes {estimate} longer than alone; they may be threads of one core, "
        "or share its clock",
        "refuted": "{count} cores that count on lines of their own do not slow each other down: "
        "{estimate}",
        "inconclusive": "whether {count} cores that share no line slow each other down stays open: "
        "{estimate}",
    },
    reasons=_REASONS,
)

FALSE_SHARING = Claim(
    name="false_sharing",
    kind="description",
    subject=f"false sharing, {_CORES}",
    quantity="additional time to count on one line, each core its own counter, compared with "
    "lines of their own",
    unit="percent",
    exact="counting takes over {threshold:g} % longer where the cores' counters share a line",
    plain={
        "supported": "false sharing: counters of {count} cores on one line take {estimate} longer "
        "than on lines of their own (CPUs {cpus}, {distance})",
        "refuted": "counters of {count} cores on one line take hardly longer than on lines of "
        "their own (CPUs {cpus}, {distance}): {estimate}",
        "inconclusive": "whether counters of {count} cores on one line take longer than on lines "
        "of their own stays open (CPUs {cpus}, {distance}): {estimate}",
    },
    reasons=_REASONS,
)

NEIGHBOURS = Claim(
    name="neighbour_lines",
    kind="description",
    subject=f"neighbouring lines, {_CORES}",
    quantity="additional time to count on neighbouring lines of 64 bytes, compared with lines 256 "
    "bytes apart",
    unit="percent",
    exact="counting takes over {threshold:g} % longer where the cores' counters lie on "
    "neighbouring lines",
    plain={
        "supported": "neighbouring lines are too near: counters of {count} cores on them take "
        "{estimate} longer than 256 bytes apart (CPUs {cpus}, {distance})",
        "refuted": "64 bytes apart is enough: counters of {count} cores on neighbouring lines take "
        "hardly longer than 256 bytes apart (CPUs {cpus}, {distance}): {estimate}",
        "inconclusive": "whether 64 bytes apart is enough for counters of {count} cores stays open "
        "(CPUs {cpus}, {distance}): {estimate}",
    },
    reasons=_REASONS,
)

TOGETHER = Claim(
    name="slower_together",
    kind="description",
    subject="{kind}",
    quantity="time from one operation to the next, of all cores together, compared with one core "
    "alone",
    unit="percent",
    exact="{count} cores together take over {threshold:g} % longer from one operation ({kind}) to "
    "the next than one core alone",
    plain={
        "supported": "{count} cores together get less done than one alone ({kind}): from one "
        "operation to the next {estimate} more time, {together_ns:.3g} ns instead of "
        "{alone_ns:.3g} ns",
        "refuted": "{count} cores together get no less done than one alone ({kind}): from one "
        "operation to the next {estimate} more time, {together_ns:.3g} ns instead of "
        "{alone_ns:.3g} ns",
        "inconclusive": "whether {count} cores together get less done than one alone stays open "
        "({kind}): {estimate}",
    },
    together={
        "supported": "{count} ways to share a counter get less done with all cores than with one: "
        "{each[kind]:list}",
        "refuted": "{count} ways to share a counter get no less done with all cores than with one: "
        "{each[kind]:list}",
        "inconclusive": "of {count} ways to share a counter it stays open whether all cores get "
        "less done than one: {each[kind]:list}",
    },
    reasons=_REASONS,
)

LOCK = Claim(
    name="lock_slower",
    kind="description",
    subject="{kind}",
    quantity="time from one operation under the lock to the next, of all cores together, compared "
    "with the C library's mutex",
    unit="percent",
    exact="under the lock {kind} {count} cores take over {threshold:g} % longer than under the C "
    "library's mutex",
    plain={
        "supported": "the lock {kind} is slower than the C library's mutex, with {count} cores: "
        "{estimate}",
        "refuted": "the lock {kind} is not slower than the C library's mutex, with {count} cores: "
        "{estimate}",
        "inconclusive": "whether the lock {kind} is slower than the C library's mutex stays open, "
        "with {count} cores: {estimate}",
    },
    together={
        "supported": "{count} locks are slower than the C library's mutex: {each[kind]:list}",
        "refuted": "{count} locks are not slower than the C library's mutex: {each[kind]:list}",
        "inconclusive": "of {count} locks it stays open whether they are slower than the C "
        "library's mutex: {each[kind]:list}",
    },
    reasons=_REASONS,
)

UNFAIR = Claim(
    name="unfair",
    kind="description",
    subject="{kind}, cpu{cpu}",
    quantity="how much less than an even share the core gets that gets the least",
    unit="percent",
    exact="one of {count} cores gets over {threshold:g} % less than an even share ({kind})",
    plain={
        "supported": "unfair: cpu{cpu} gets {estimate} less than an even share ({kind})",
        "refuted": "no core gets clearly less than an even share ({kind}): cpu{cpu} the least, "
        "{estimate} less",
        "inconclusive": "whether all cores get an even share stays open ({kind}): cpu{cpu} gets "
        "{estimate} less",
    },
    together={
        "supported": "{count} ways to share are unfair, some core gets less than an even share: "
        "{each[kind]:list}",
        "refuted": "{count} ways to share are fair: {each[kind]:list}",
        "inconclusive": "of {count} ways to share it stays open whether they are fair: "
        "{each[kind]:list}",
    },
    reasons=_REASONS,
)

CLAIMS = (OWN_LINES, FALSE_SHARING, NEIGHBOURS, TOGETHER, LOCK, UNFAIR)
"""The claims, in the order in which they are made."""
