"""What ``data_tlb`` can claim: a level of the data TLB has the entries that are reported."""

from __future__ import annotations

from perflib.framework.page_claims import NOT_BACKED
from perflib.model.claim import Claim

__all__ = ["FIRST", "SECOND", "WAYS"]


def _entries(name: str, subject: str, level: str) -> Claim:
    """``level``: in words."""
    return Claim(
        name=name,
        kind="description",
        subject=subject,
        quantity="pages at which half of the rise beyond a level of the data TLB has come",
        unit="pages",
        exact=f"loads through one line in each of so many pages of {{page}} begin to take longer "
        f"where the {level} is full ({{entries:list}} entries)",
        direction="within",
        plain={
            "supported": f"loads take longer beyond the entries of the {level} for pages of "
            "{page}: {estimate}",
            "refuted": f"loads do not begin to take longer where the {level} for pages of {{page}} "
            "would be full",
            "inconclusive": f"after how many pages of {{page}} the {level} is full stays open: "
            "{estimate}",
        },
        reasons={
            **NOT_BACKED,
            "at_reach": "It lies within {tolerance:g} % of the {entries:list} entries of that "
            "level.",
            "elsewhere": "Its whole interval lies elsewhere.",
            "published": "CPUID does not report these entries: they are {origin}.",
            "reach_unknown": "How many entries that level has is not known.",
            "open": "The interval leaves it open: more sizes near the knee, or more rounds.",
            "early": "The rise begins at {begins:.0f} pages: some of its sets are full before the "
            "others, as where a hash of the page number chooses the set, or entries are replaced "
            "at random.",
            "one_knee": "There is no knee but the other level's.",
            "too_small": "The most pages, {most:.0f}, are too few for it.",
            "no_knee": "There is no knee: at no number of pages does a load take {bound:.1f} % "
            "more than through as many lines on few pages.",
            "no_knee_seen": "No knee was found, but all that can be said is that at no number of "
            "pages does a load take {bound:.1f} % more than through as many lines on few pages.",
            "too_few": "Too few sizes or batches to tell a knee from none.",
        },
    )


FIRST = _entries("first_level", "data TLB {page}", "first-level data TLB")
SECOND = _entries("second_level", "second-level TLB {page}", "second-level TLB")

WAYS = Claim(
    name="ways",
    kind="description",
    subject="data TLB ways",
    quantity="pages that fit the first-level data TLB if all of them belong to one of its sets",
    unit="pages",
    exact="of pages of 4 KiB whose numbers agree in the bits that choose a set of the first-level "
    "data TLB, as many fit as it has ways ({ways})",
    direction="within",
    plain={
        "supported": "the first-level data TLB has the {ways} ways that are reported, in sets that "
        "the low bits of the page number choose: {estimate}",
        "refuted": "the first-level data TLB does not have the {ways} ways that are reported: "
        "{estimate}",
        "inconclusive": "the ways of the first-level data TLB stay open: {estimate}",
    },
    reasons={
        "sets": "Of pages {sets} or more apart no fewer fit: it has {sets} sets.",
        "no_sets": "At any distance as many fit: any entry may hold any page, or a hash of the "
        "page number chooses the set.",
        "open_ways": "What fits at different distances leaves it open.",
        "elsewhere": "From {least:.0f} to {most:.0f} pages fit.",
        "published": "CPUID does not report these ways: they are {origin}.",
        "reach_unknown": "How many ways that level has is not known.",
        "hashed": "The pages that fit do not fall as the low bits of the page number would have "
        "it: another function of the number chooses the set, or entries are replaced at random.",
        "farther": "At the largest distance still fewer fit: larger 'strides' may show the ways.",
        "no_knee_apart": "Pages {stride} apart show no knee: larger numbers of pages, or more "
        "rounds.",
        "no_entries": "No knee shows how many entries the level has.",
    },
)
