"""What is claimed of huge pages wherever page sizes are compared: are they huge for the TLB?"""

from __future__ import annotations

from perflib.model.claim import Claim

__all__ = ["HUGE_PAGES", "NOT_BACKED"]

HUGE_PAGES = Claim(
    name="huge_pages",
    kind="description",
    subject="huge pages {backing}",
    quantity="what loads through many pages cost on huge pages",
    unit="percent of the 4 KiB pages' cost",
    exact="a page of {page} ({backing}) takes one entry of the TLB, not as many as the {smaller} "
    "pages in it",
    direction="below",
    plain={
        "supported": "a page of {page} ({backing}) is one entry of the TLB here",
        "refuted": "huge pages ({backing}) are not backed by the host: a load through many pages "
        "costs {estimate}",
        "inconclusive": "whether a page of {page} ({backing}) is one entry of the TLB stays open: "
        "{estimate}",
    },
    reasons={
        "clear": "On them, as many lines cost the same on many pages.",
        "excluded": "The host of this virtual machine has smaller pages behind them. What they "
        "save is a shorter page walk, not entries of the TLB.",
        "no_cost": "Not even on 4 KiB pages do more pages cost time here.",
    },
)

# Of a claim that compares page sizes: the template of the reason that `PageControl` gives.
NOT_BACKED = {
    "not_backed": "Huge pages ({backing}) are not backed by the host here (see the control): what "
    "differs is the length of the page walk, not entries of the TLB.",
}
