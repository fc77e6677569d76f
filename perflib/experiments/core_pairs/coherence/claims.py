"""What ``coherence`` can claim beside what any matrix of cores can."""

from __future__ import annotations

from collections.abc import Mapping

from perflib.model.claim import Claim

__all__ = [
    "AHEAD",
    "AT_HAND",
    "AT_ONCE",
    "CONTROL",
    "COPIES",
    "FORWARDED",
    "MIGRATED",
    "PREPARED",
    "PROTOCOL",
]

# What the other core does with the line, by its state.
COPIES: Mapping[str, str] = {
    "modified": "has modified",
    "exclusive": "owns alone and unchanged (Exclusive)",
    "shared": "shares with a third",
    "forward": "shares with a third and has loaded last (Forward, where there is such a state)",
    "owned": "has modified and then shared with a third (Owned, where there is such a state)",
    "shared_here": "shares with this one",
    "owned_here": "modified before this one loaded it",
    "last_level": "modified and has given up to the last-level cache",
}

CONTROL = Claim(
    name="control",
    kind="description",
    subject="control",
    quantity="additional latency of lines spread over pages, shuffled compared with ascending",
    unit="percent by the order",
    exact="spread over pages, lines cost the same in any order: neither a prefetcher nor the "
    "fetching of a neighbour helps (by more than {threshold:g} %)",
    direction="within",
    plain={
        "supported": "no prefetcher helps in the layout used: the order of the lines changes their "
        "latency by {change:interval %}",
        "refuted": "a prefetcher helps in the layout used: the order of the lines changes their "
        "latency by {change:interval %}",
        "inconclusive": "whether a prefetcher helps in the layout used stays open: the order of "
        "the lines changes their latency by {change:interval %}",
    },
    reasons={
        "neighbours": "Spread lines differ by less than {threshold:g} %, while neighbours come "
        "faster in ascending order.",
        "unprovoked": "The order makes no difference, but nor does this processor fetch neighbours "
        "ahead: there is nothing to be safe from, or it was not provoked.",
        "excluded": "The whole interval lies beyond {threshold:g} %.",
        "open": "{threshold:g} % lies within the interval: more rounds would narrow it.",
    },
)

AHEAD = Claim(
    name="fetched_ahead",
    kind="description",
    subject="fetching ahead",
    quantity="share of the latency that neighbours in ascending order save, compared with lines "
    "spread over pages and shuffled",
    unit="percent of the latency saved",
    exact="lines that another core modified come more than {threshold:g} % faster if they are "
    "neighbours and are taken in ascending order: the processor fetches them ahead",
    plain={
        "supported": "the processor fetches neighbouring lines ahead: {saved:interval %} of their "
        "latency is saved",
        "refuted": "the processor does not fetch neighbouring lines ahead: {saved:interval %} of "
        "their latency is saved",
        "inconclusive": "whether the processor fetches neighbouring lines ahead stays open: "
        "{saved:interval %} of their latency is saved",
    },
)

PREPARED = Claim(
    name="prepared",
    kind="description",
    subject="preparation",
    quantity="additional latency of the fastest line that comes from another core or from memory, "
    "compared with a local one",
    unit="percent",
    exact="states are what they should be, as far as can be seen: a line of another core, or of "
    "memory, takes more than {threshold:g} % longer than one of this core's own",
    plain={
        "supported": "lines were in the states that were prepared: the fastest that is not local "
        "({nearest}) takes {estimate} longer than a local one",
        "refuted": "lines were not in the states that were prepared: {nearest} takes as long as a "
        "local line ({estimate})",
        "inconclusive": "whether lines were in the states that were prepared stays open: {nearest} "
        "takes {estimate} longer than a local line",
    },
    reasons={"proven": "Every line held what its author wrote."},
)

_LATENCIES = {"latencies": "It is {slow_ns:.3g} ns ({slow}) and {fast_ns:.3g} ns ({fast})."}

FORWARDED = Claim(
    name="forwarded",
    kind="description",
    subject="{state} {access}",
    quantity="additional latency of a line from memory, compared with one from the other core",
    unit="percent",
    exact="a line that another core {copy} arrives faster from there than from memory: to {access} "
    "it from memory takes more than {threshold:g} % longer",
    plain={
        "supported": "{doing} a line that another core {copy} is faster than {doing} it from "
        "memory: {fast_ns:.3g} instead of {slow_ns:.3g} ns",
        "refuted": "{doing} a line that another core {copy} is no faster than {doing} it from "
        "memory: {fast_ns:.3g} and {slow_ns:.3g} ns",
        "inconclusive": "whether {doing} a line that another core {copy} is faster than {doing} it "
        "from memory stays open: {fast_ns:.3g} and {slow_ns:.3g} ns",
    },
    reasons=_LATENCIES,
)

AT_HAND = Claim(
    name="at_hand",
    kind="description",
    subject="{state} {access}",
    quantity="additional latency of a line that is at hand and in another core's cache, too, "
    "compared with a local one",
    unit="percent",
    exact="to {access} a line that is at hand, but that another core {copy}, takes more than "
    "{threshold:g} % longer than one's own",
    plain={
        "supported": "{doing} a line at hand that another core {copy} costs more than {doing} a "
        "local one: {slow_ns:.3g} instead of {fast_ns:.3g} ns",
        "refuted": "{doing} a line at hand that another core {copy} costs no more than {doing} a "
        "local one: {slow_ns:.3g} and {fast_ns:.3g} ns",
        "inconclusive": "whether {doing} a line at hand that another core {copy} costs more than "
        "{doing} a local one stays open: {slow_ns:.3g} and {fast_ns:.3g} ns",
    },
    reasons=_LATENCIES,
)

PROTOCOL = Claim(
    name="protocols",
    kind="description",
    subject="protocols",
    quantity="additional latency, as one way, by the slowest protocol compared with the fastest",
    unit="percent",
    exact="the protocol alone changes what is reported of the same cores by more than "
    "{threshold:g} %, even if all is reported as one way ({slowest} compared with {fastest})",
    plain={
        "supported": "the protocol alone changes the latency between the same cores: {slowest} "
        "reports {estimate} more than {fastest}, both as one way",
        "refuted": "all protocols report the same latency between the same cores, as one way: "
        "{slowest} differs from {fastest} by {estimate}",
        "inconclusive": "whether the protocol alone changes the latency stays open: {slowest} "
        "reports {estimate} more than {fastest}, both as one way",
    },
)

MIGRATED = Claim(
    name="migrated",
    kind="anomaly",
    subject="migrated",
    quantity="range of the batches' latencies between the same two cores, over the lowest",
    unit="percent",
    exact="the distance of the same two cores changed in the course of the run: {of} by more than "
    "{threshold:g} % from one batch to another",
    plain={
        "supported": "the host migrated the virtual cores: the latency between the same two "
        "changed by {effect:.0f} %",
        "refuted": "the cores stayed where they were: the latency between the same two changed by "
        "{effect:.0f} % at most",
        "inconclusive": "whether the cores stayed where they were stays open",
    },
    reasons={
        "batches": "It takes two batches or more.",
        "same_place": "They stayed as far apart as they were, as far as latencies show.",
        "other_places": "A host that migrates virtual cores does that: to hardware threads of one "
        "core, to cores that share a cache, and to others. Then medians of this run are of several "
        "distances.",
    },
)

AT_ONCE = Claim(
    name="at_once",
    kind="description",
    subject="pairs at once",
    quantity="additional latency while other pairs are measured, compared with alone",
    unit="percent",
    exact="pairs may be measured at the same time: it changes their latencies by no more than "
    "{threshold:g} %",
    direction="within",
    plain={
        "supported": "pairs that are measured at the same time do not slow each other: {estimate}",
        "refuted": "pairs that are measured at the same time change each other's latency: "
        "{estimate}",
        "inconclusive": "whether pairs that are measured at the same time slow each other stays "
        "open: {estimate}",
    },
    reasons={
        "clear": "The whole interval lies within {threshold:g} %.",
        "excluded": "The whole interval lies beyond {threshold:g} %.",
        "open": "{threshold:g} % lies within the interval: more rounds would narrow it.",
    },
)
