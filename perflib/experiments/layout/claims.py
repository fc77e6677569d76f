"""What ``layout`` can claim."""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["ALONE", "CLAIMS", "DRAWS", "FASTER", "MOVES", "OUTPUT"]

_FEW = {
    "few_starts": "No layout was started in two rounds: more time is needed.",
    "failed": "In {failed} of {trials} trials the conditions were not in force, or the program "
    "failed: they are left out.",
}

MOVES = Claim(
    name="layout_moves",
    kind="anomaly",
    subject="{factor}",
    quantity="the largest difference between two levels of a factor that should not matter",
    unit="percent",
    exact="{factor} moves the program's {response} by more than {threshold:g} %",
    plain={
        "supported": "{factor} alone moves the program's {response}: {estimate} between "
        "{fastest} and {slowest}",
        "refuted": "{factor} does not matter: two of its levels differ by {high:.3g} % at most",
        "inconclusive": "whether {factor} moves the program's {response} stays open: {estimate} "
        "between {fastest} and {slowest}",
    },
    together={
        "refuted": "{count} factors do not matter: {each[factor]:list}",
        "inconclusive": "Of {count} factors it stays open: {each[factor]:list}",
    },
    reasons={
        "chance": "With the names of levels exchanged at random, one of the factors looks like "
        "this too often (p = {p:.2g}): more rounds are needed.",
        "core": "Others that use one core more than another may be why: kv_per_core tells.",
        "permuted": "Levels exchanged at random: p = {p:.2g} for all factors together.",
    },
)

ALONE = Claim(
    name="layout_alone",
    kind="description",
    subject="layout alone",
    quantity="standard deviation of the program's time over random layouts, without the scatter "
    "between starts of one layout and the differences between cores",
    unit="percent",
    exact="layout alone moves the program's {response} by more than {threshold:g} % "
    "(standard deviation)",
    plain={
        "supported": "layout alone moves the program's {response} by {estimate} (standard "
        "deviation): of two builds in one layout each, a difference below {beside:.3g} % says "
        "nothing",
        "refuted": "layout alone hardly moves the program's {response}: by {high:.2g} % at most "
        "(standard deviation)",
        "inconclusive": "by how much layout alone moves the program's {response}: {estimate} "
        "(standard deviation)",
    },
    reasons=_FEW,
)

DRAWS = Claim(
    name="draws_scatter",
    kind="description",
    subject="random addresses",
    quantity="additional scatter between starts of one layout where addresses are randomised",
    unit="percentage points",
    exact="starts of one layout scatter by over {threshold:g} points more with ASLR than without",
    plain={
        "supported": "with ASLR each start is a layout of its own: starts scatter more than "
        "without it, by {estimate}",
        "refuted": "ASLR adds nothing that counts to the scatter between starts: {estimate}",
        "inconclusive": "whether ASLR adds to the scatter between starts stays open: {estimate}",
    },
)

OUTPUT = Claim(
    name="output_same",
    kind="description",
    subject="output",
    quantity="different outputs, beside the first",
    unit="outputs",
    exact="the program writes the same in every layout",
    plain={
        "supported": "the program writes the same in every layout",
        "refuted": "what the program writes depends on the layout: {outputs} different outputs, "
        "and the same layout always writes the same",
        "inconclusive": "the program writes something else at each start ({outputs} different "
        "outputs): whether layout changes its result cannot be told",
    },
    reasons={
        "each_start": "Two starts of one layout differ, too: times, addresses or process numbers "
        "are among what it writes, perhaps.",
        "outputs": "Of {trials} trials.",
    },
    counted=True,
)

FASTER = Claim(
    name="faster",
    kind="description",
    subject="B against A",
    quantity="by how much less time B takes than A in the same random layouts",
    unit="percent",
    exact="B takes less {response} than A, with layout randomised away",
    plain={
        "supported": "B is faster than A with layout randomised away: {estimate}",
        "refuted": "B is slower than A with layout randomised away: {estimate} less time",
        "inconclusive": "neither is faster with layout randomised away: B takes {estimate} less "
        "time than A",
    },
    reasons={
        "clear": "From {pairs} pairs of starts.",
        "excluded": "From {pairs} pairs of starts.",
        "open": "From {pairs} pairs of starts: for ± {target:g} points some {needed} are needed.",
        "layout_more": "Layout moves more than that: one build alone by {alone:.2g} % (standard "
        "deviation), so a comparison in one layout could have said the opposite.",
    },
)

CLAIMS = (FASTER, ALONE, MOVES, DRAWS, OUTPUT)
"""The claims, in the order in which they are made."""
