"""What can be claimed of profiles: of two that are compared, and of functions' entries.

``core`` names the core where several are compared with one; else it is empty.
"""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = [
    "CONTROL",
    "ENTRY",
    "FUNCTION",
    "FUNCTION_ENTRY",
    "INSTRUCTION",
    "INSTRUCTIONS",
    "LONGER",
    "STANDS_OUT",
]

# --- two profiles compared -----------------------------------------------------------------------

_ALONE = {
    "alone": "Only samples taken while their core was alone are compared: {alone:.0f} % of all.",
    "shared": "A core was hardly ever alone: what its sibling takes is in all of its samples.",
}
_REPETITIONS = {
    **_ALONE,
    "repetitions": "{rounds} repetitions.",
    "too_few": "It takes {least} repetitions or more, and there are {rounds}.",
    "counting_only": "Counting only: of one repetition the intervals come from the number of "
    "samples and say nothing of how much functions differ from one event to the next. "
    "It takes {least} repetitions or more.",
}

LONGER = Claim(
    name="longer",
    kind="anomaly",
    subject="{core} event time",
    quantity="how much longer the event takes",
    unit="percent",
    exact="the event takes more than {threshold:g} % longer, or shorter, on {second} than on "
    "{first}",
    direction="beyond",
    plain={
        "supported": "the event's time on {second} differs from that on {first}: {estimate}",
        "refuted": "the event takes as long on {second} as on {first}: {estimate}",
        "inconclusive": "whether the event takes longer on {second} than on {first} stays open: "
        "{estimate}",
    },
    together={
        "refuted": "the event takes as long on {count} other cores as on {first} "
        "(widest interval {widest})"
    },
    reasons={
        **_REPETITIONS,
        "chance": "Of {claims} claims about profiles one may say so by chance: the p value, "
        "corrected for their number, is {p:.2g}.",
        "outliers": "{outliers} rounds that lie far from the others are left out.",
    },
)

STANDS_OUT = Claim(
    name="stands_out",
    kind="anomaly",
    subject="{core} standing out",
    quantity="what the leading function takes beyond the common slowdown",
    unit="percent of the event time",
    exact="on {second} some function takes more, or less, than the slowdown common to all other "
    "functions explains",
    plain={
        "supported": "functions that stand out on {second}: {named:list}",
        "refuted": "no function stands out on {second}: all have {common:interval %} in common",
        "inconclusive": "whether a function stands out on {second} stays open",
    },
    together={"refuted": "no function stands out on any of {count} cores"},
    reasons={
        **_REPETITIONS,
        "by_count": "By counting alone, {named:list} would stand out.",
        "too_few_functions": "{tested} functions have enough samples: it takes three to tell "
        "which is odd.",
        "unseen": "An excess of up to {open:.1f} % of the event time could have stayed unseen.",
        "unseen_any": "An excess of any size could have stayed unseen.",
        "would_be_seen": "Any excess of {open:.1f} % of the event time or more would have been "
        "seen.",
    },
)

FUNCTION = Claim(
    name="function",
    kind="anomaly",
    subject="{core} {function}",
    quantity="by how much the function grew beyond the common slowdown",
    unit="percent",
    exact="{function} takes {change} on {second} than the slowdown common to the other functions "
    "explains",
    plain={
        "supported": "{function} takes {change} on {second} than the common slowdown explains: "
        "{of_event:interval %} of the event time",
        "refuted": "{function} takes on {second} what the common slowdown explains: {estimate}",
        "inconclusive": "whether {function} takes {change} on {second} than the common slowdown "
        "explains stays open: {of_event:interval %} of the event time",
    },
    reasons={
        **_REPETITIONS,
        "unlikely": "The p value is {p:.2g}, corrected for the number of functions and claims.",
    },
)

# --- instructions of one function ----------------------------------------------------------------

_SKID = {
    "clock": "Samples are a clock's: an interrupt is taken late, in a virtual machine by an "
    "unknown time. The instruction that took the time is the one named or one of those before it.",
    "counter": "A counter's samples lie behind the instruction that took the time, by one or a "
    "few: it is the one named or one of those before it.",
    "precise": "The samples are precise: they lie on the instruction that took the time.",
}
_INSTRUCTIONS = {
    **_REPETITIONS,
    **_SKID,
    "builds": "The sides are two builds: code that only lies elsewhere may take another time, too.",
    "by_count": "By counting alone, {named:list} would stand out.",
    "incomparable": "Without the files of both builds nothing says which instruction is which.",
    "too_few_instructions": "{tested} instructions have enough samples: it takes three to tell "
    "which is odd.",
    "open_points": "A change of up to {open:.1f} points of the function's samples could have "
    "stayed unseen.",
    "seen_points": "Any change of {open:.1f} points of the function's samples would have been "
    "seen.",
    "unlikely": "The p value is {p:.2g}, corrected for the number of instructions.",
}

INSTRUCTIONS = Claim(
    name="instructions",
    kind="anomaly",
    subject="{function} instructions",
    quantity="the leading instruction's share of the function's samples, second less first",
    unit="points",
    exact="on {second} some instruction of {function} has another share of its samples than on "
    "{first}, beyond what the others have in common",
    plain={
        "supported": "in {function} single instructions differ between {second} and {first}: "
        "{named:list}",
        "refuted": "no instruction of {function} became costlier, or cheaper, on {second} than on "
        "{first}",
        "inconclusive": "whether an instruction of {function} became costlier on {second} than "
        "on {first} stays open",
    },
    reasons=_INSTRUCTIONS,
)

INSTRUCTION = Claim(
    name="instruction",
    kind="anomaly",
    subject="{function} {place}",
    quantity="by how much the instruction grew beside the function's others",
    unit="percent",
    exact="the instruction at {place} of {function} takes {change} on {second} than the others of "
    "the function explain",
    plain={
        "supported": "{place} of {function} ({text}) takes {change} on {second}: "
        "{points:interval points} of the function's samples",
        "inconclusive": "whether {place} of {function} ({text}) takes {change} on {second} stays "
        "open: {points:interval points} of the function's samples",
    },
    reasons=_INSTRUCTIONS,
)

# --- entries of functions ------------------------------------------------------------------------

_WINDOW = "first {instructions} instructions ({window_bytes} bytes where they are unknown)"
_EVEN = "times the even share"

ENTRY = Claim(
    name="entry",
    kind="description",
    subject="entry",
    quantity="samples on functions' first instructions over those of an even spread",
    unit=_EVEN,
    exact=f"over all functions, the {_WINDOW} hold more than {{threshold:g}} times the samples "
    "that an even spread would give",
    plain={
        "supported": "the first instructions of functions are costlier than their others: "
        "{estimate}",
        "refuted": "the first instructions of functions cost what their others do: {estimate}",
        "inconclusive": "whether the first instructions of functions are costlier than their "
        "others stays open: {estimate}",
    },
    reasons={
        "too_few_functions": "Of {functions} functions nothing follows for others: {least} or "
        "more are needed.",
        "counts": "{costly} of {functions} functions have a costly entry; {costly_control} have a "
        "costly control window.",
        "uneven": "As many instructions at a random place elsewhere may be as costly: the spread "
        "is uneven everywhere, not only at the entry (control {control:interval}).",
        "skid": "The samples are a clock's: the address is where the interrupt was taken, at or "
        "after the instruction that took the time.",
    },
)

CONTROL = Claim(
    name="entry_control",
    kind="description",
    subject="entry control",
    quantity="samples on as many instructions elsewhere over those of an even spread",
    unit=_EVEN,
    exact="over all functions, as many instructions at a random place elsewhere hold more than "
    "{threshold:g} times the samples that an even spread would give",
    plain={
        "supported": "instructions at a random place are costlier than others, too: {estimate}",
        "refuted": "instructions at a random place cost what others do: {estimate}",
        "inconclusive": "whether instructions at a random place are costlier than others stays "
        "open: {estimate}",
    },
    reasons=ENTRY.reasons,
)

FUNCTION_ENTRY = Claim(
    name="function_entry",
    kind="description",
    subject="entry {function}",
    quantity="samples on the function's first instructions over those of an even spread",
    unit=_EVEN,
    exact=f"the {_WINDOW} of {{function}} hold more than {{threshold:g}} times their even share "
    "of its samples",
    plain={
        "supported": "the first instructions of {function} are costlier than its others: "
        "{estimate}",
        "refuted": "the first instructions of {function} cost what its others do: {estimate}",
        "inconclusive": "whether the first instructions of {function} are costlier than its "
        "others stays open: {estimate}",
    },
    reasons={
        "unlikely": "The p value is {p:.2g}, corrected for the number of functions.",
        "too_few_samples": "{samples} samples cannot tell.",
        "size_unknown": "Its size is not known: it ends at the largest offset seen.",
        "control_too": "As many instructions at a random place hold {control:.2g} times their even "
        "share: its samples are uneven elsewhere, too.",
    },
)
