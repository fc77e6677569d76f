"""What ``kv_per_core`` can claim."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = [
    "CLOCK",
    "INTERFERENCE",
    "NESTED_PAGING",
    "PAIR_PART",
    "SHARED",
    "SLOWER",
    "SOFTIRQ",
    "STOLEN",
    "TAKEN",
    "TIME_PER_EVENT",
    "TOTAL",
]

_CANNOT_TELL = {
    "no_second_state": "The probes saw one state only: a sibling is always idle, always busy, or "
    "there is none.",
    "no_first_state": "The probes never saw the core alone.",
    "few_probes": "There are too few probes to tell when the core was alone.",
    "no_probes": "The samples of this core have no probes.",
}

SLOWER = Claim(
    name="slower",
    kind="anomaly",
    subject="cpu{cpu}",
    quantity="slowdown compared with the median of the other cores, without interference",
    unit="percent",
    exact="cpu{cpu} is more than {threshold:g} % slower than the median of the other cores",
    plain={
        "supported": "cpu{cpu} is slower than the others: {estimate}",
        "refuted": "cpu{cpu} is as fast as the others: {estimate}",
        "inconclusive": "cpu{cpu} beside the others: {estimate}, not known well enough for a "
        "verdict at {threshold:g} %",
    },
    together={"refuted": "All {count} cores are equally fast (widest interval {widest})"},
    reasons={
        "all_events": "All events slowed down, not a few.",
        "few_events": "Only {share:.0%} of the events slowed down, events {events:list} most.",
        "some_events": "{share:.0%} of the events slowed down.",
        "shared": "For {off_cpu:.1f} % of the time another task of this system had the core "
        "({switches:.0f} switches a second): the core is shared, not slow.",
        "not_shared": "Other tasks of this system had the core for {off_cpu:.1f} % of the time "
        "only: the core itself, or what the hypervisor or its sibling takes of it, is slower.",
        "where": "It is {where}.",
        "alone": "From the samples that had the core alone ({share:.0%} of them).",
        "untold": "The probes never saw two states, so all samples count: a sibling that was "
        "always busy, or always idle, cannot be told from the core.",
        "never_alone": "The core was never alone, and others were: what a sibling takes cannot be "
        "told from the core.",
        "probes_differ": "Its probes differ from the others' by {difference:.1f} %, and never saw "
        "two states: a lower clock or a busy sibling cannot be told from a slow core.",
    },
)

CLOCK = Claim(
    name="clock",
    kind="anomaly",
    subject="cpu{cpu} clock",
    quantity="length of a cycle compared with the median of the other cores",
    unit="percent",
    exact="a cycle of cpu{cpu} is more than {threshold:g} % longer than the others'",
    plain={
        "supported": "the clock of cpu{cpu} is lower than the others': a cycle is longer by "
        "{estimate}",
        "refuted": "the clock of cpu{cpu} is as high as the others': {estimate}",
        "inconclusive": "the clock of cpu{cpu} is not known well enough: {estimate}",
    },
    together={"refuted": "All {count} cores have the same clock (widest interval {widest})"},
    reasons=_CANNOT_TELL,
)

SHARED = Claim(
    name="shared",
    kind="description",
    subject="cpu{cpu} shared",
    quantity="what the work takes longer because another thread uses the physical core",
    unit="percent",
    exact="sharing its physical core lengthens the work on cpu{cpu} by more than {threshold:g} %",
    plain={
        "supported": "the physical core of cpu{cpu} is shared with a busy neighbour {share:.0%} "
        "of the time, which costs {estimate}",
        "refuted": "the physical core of cpu{cpu} is shared with a busy neighbour {share:.0%} of "
        "the time, which costs next to nothing: {estimate}",
        "inconclusive": "what a busy neighbour on the physical core of cpu{cpu} costs: {estimate}",
    },
    reasons=_CANNOT_TELL,
)

TAKEN = Claim(
    name="taken",
    kind="description",
    subject="cpu{cpu} taken",
    quantity="share of the core's time that other tasks of this system, or a quota, take",
    unit="percent",
    exact="other tasks or a quota take more than {threshold:g} % of the time of cpu{cpu}",
    plain={
        "supported": "{estimate} of the time of cpu{cpu} is taken by other tasks of this system",
        "refuted": "other tasks of this system take next to nothing of cpu{cpu}: {estimate}",
        "inconclusive": "other tasks of this system take about {estimate} of the time of cpu{cpu}",
    },
    together={"refuted": "Other tasks take next to nothing of any of the {count} cores"},
    reasons={
        "quota": "A quota of CPU time (control group) stops the job for {quota:interval %} of the "
        "time.",
        "tasks": "Most CPU time there, beside the job: {tasks:list}.",
        "no_run_delay": "The samples do not say how long they waited for the core.",
    },
    counted=True,  # by the kernel
)

STOLEN = Claim(
    name="stolen",
    kind="description",
    subject="cpu{cpu} stolen",
    quantity="share of the core's time in which the hypervisor ran something else",
    unit="percent",
    exact="the hypervisor takes more than {threshold:g} % of the time of cpu{cpu}",
    plain={
        "supported": "{estimate} of the time of cpu{cpu} is taken by the hypervisor",
        "refuted": "the hypervisor takes next to nothing of cpu{cpu}: {estimate}",
        "inconclusive": "the hypervisor takes about {estimate} of the time of cpu{cpu}",
    },
    together={"refuted": "The hypervisor takes next to nothing of any of the {count} cores"},
    reasons={"no_run_delay": "The samples do not say how long they waited for the core."},
    counted=True,  # by the kernel
)

SOFTIRQ = Claim(
    name="softirq",
    kind="description",
    subject="cpu{cpu} softirq",
    quantity="share of the core's time that soft interrupts take, by the kernel's ticks",
    unit="percent",
    exact="soft interrupts take more than {threshold:g} % of the time of cpu{cpu}",
    plain={
        "supported": "soft interrupts take {estimate} of the time of cpu{cpu}, most of them {kind}",
        "refuted": "soft interrupts take next to nothing of cpu{cpu}: {estimate}",
        "inconclusive": "soft interrupts take about {estimate} of the time of cpu{cpu}",
    },
    together={"refuted": "Soft interrupts take next to nothing of any of the {count} cores"},
    counted=True,  # by the kernel
)

TOTAL = Claim(
    name="total",
    kind="description",
    subject="cpu{cpu} total",
    quantity="wall time of the same work compared with the median of the other cores",
    unit="percent",
    exact="all in all, the same work takes more than {threshold:g} % longer on cpu{cpu} than on "
    "the other cores",
    plain={
        "supported": "all in all, the same work took longer on cpu{cpu} than elsewhere: {estimate}",
        "refuted": "all in all, the same work took no longer on cpu{cpu} than elsewhere: "
        "{estimate}",
        "inconclusive": "all in all, the same work on cpu{cpu} compared with elsewhere: {estimate}",
    },
)

INTERFERENCE = Claim(
    name="interference",
    kind="anomaly",
    subject="cpu{cpu} interference",
    quantity="share of the time with interference",
    unit="percent",
    exact="something interferes with cpu{cpu} for more than {threshold:g} % of the time",
    plain={
        "supported": "something interferes with cpu{cpu}: {estimate} of the time",
        "refuted": "nothing interferes with cpu{cpu} for long: {estimate} of the time",
        "inconclusive": "how much interferes with cpu{cpu} stays open: {estimate} of the time",
    },
    together={"refuted": "Nothing interferes for long with any of the {count} cores"},
    reasons={"above_baseline": "Bursts in which it lies above its own baseline."},
)

TIME_PER_EVENT = Claim(
    name="time_per_event",
    kind="description",
    subject="time per event",
    quantity="change of the time of the same events, on the median core, without interference",
    unit="percent",
    exact="the same {events} events take more than {threshold:g} % longer, or shorter",
    direction="beyond",
    plain={
        "supported": "the same events take another time in the second run: {estimate}",
        "refuted": "the same events take as long in both runs: {estimate}",
        "inconclusive": "whether the same events take another time stays open: {estimate}",
    },
)

PAIR_PART = Claim(
    name="pair_part",
    kind="description",
    subject="guest {part}",
    quantity="how much longer the same events take in the guest than on the host, by this part",
    unit="percent",
    exact="{part} lengthens the same events by more than {threshold:g} % in the guest, or shortens "
    "them",
    direction="beyond",
    plain={
        "supported": "guest beside host, {part}: {estimate}",
        "refuted": "guest beside host, {part}: next to nothing, {estimate}",
        "inconclusive": "guest beside host, {part}: {estimate}, not known well enough for a "
        "verdict at {threshold:g} %",
    },
    reasons={
        "other_processor": "The processors are of different kinds ({host} and {guest}): this is no "
        "pair of a host and its guest.",
        "no_guest": "Nothing says that the second machine is a virtual one.",
    },
)

NESTED_PAGING = Claim(
    name="nested_paging",
    kind="description",
    subject="guest nested paging",
    quantity="what of the guest's own slowness goes away with huge pages",
    unit="percent",
    exact="nested paging of small pages lengthens the same events by more than {threshold:g} %",
    plain={
        "supported": "nested paging of small pages costs the guest {estimate}",
        "refuted": "nested paging of small pages costs the guest next to nothing: {estimate}",
        "inconclusive": "what nested paging costs the guest is not known: {estimate}",
    },
    reasons={
        "no_huge_pages": "It takes runs of both machines with huge_pages=never and with "
        "huge_pages=always.",
    },
)
