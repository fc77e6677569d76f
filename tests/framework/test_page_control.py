"""The control of page sizes: huge pages that are huge for the TLB, that are not, and too few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perflib.framework.page_claims import HUGE_PAGES
from perflib.framework.page_control import PageControl, timed_pairs

Pairs = list[list[float]]


def worth(few: float, many: float, count: int = 9, noise: float = 0.02) -> Pairs:
    """Pairs of ns a load: through few pages, through many."""
    generator = np.random.default_rng(int(100 * many))
    found: Pairs = (np.array([few, many]) * generator.normal(1, noise, (count, 2))).tolist()
    return found


@pytest.mark.parametrize(
    ("of_huge", "verdict", "code"),
    [
        (worth(1.0, 1.0), "supported", "clear"),
        (worth(1.0, 5.8), "refuted", "excluded"),
        (worth(1.0, 3.4, noise=0.3), "inconclusive", "open"),
    ],
)
def test_huge_pages_take_one_entry_or_as_many(of_huge: Pairs, verdict: str, code: str) -> None:
    control = PageControl({"4k": worth(1.0, 6.0), "collapse": of_huge})
    (found,) = control.findings
    assert (found.of, found.about) == (HUGE_PAGES, {"backing": "collapse"})
    assert found.verdict == verdict
    assert [reason.code for reason in found.reasons] == [code]
    assert found.effect == pytest.approx(100 * (np.median(of_huge, axis=0)[1] - 1) / 5, abs=12)
    assert found.to_dict()["evidence"]["ns_few_and_many_pages"]["4k"] == pytest.approx([1, 6], 0.1)
    for text in (found.claim, found.plain, found.reason, found.subject):
        assert "{" not in text
    prevents = control.prevents("collapse")
    assert (prevents is not None) == (verdict == "refuted")
    assert control.prevents("thp") is None, "nothing is known of it"


def test_where_pages_cost_nothing_huge_ones_cannot_be_tested() -> None:
    for nothing in (worth(1.0, 1.05), [[1.0, 1.0]] * 9, [[1.0, 0.5]] * 9):
        (found,) = PageControl({"4k": nothing, "thp": nothing}).findings
        assert found.verdict == "inconclusive"
        assert [reason.code for reason in found.reasons] == ["no_cost"]


def test_huge_pages_alone_or_none_or_once() -> None:
    assert PageControl({}).findings == []
    assert PageControl({"4k": worth(1.0, 6.0)}).findings == []
    assert PageControl({"thp": worth(1.0, 1.0)}).findings == []
    (once,) = PageControl({"4k": worth(1.0, 6.0, 1), "thp": worth(1.0, 6.0, 1)}).findings
    assert once.verdict == "inconclusive"
    (some,) = PageControl({"4k": worth(1.0, 6.0), "hugetlb": worth(1.0, 1.0, 4)}).findings
    assert some.verdict == "supported"


def test_pairs_are_timed_small_pages_first_and_again_and_again() -> None:
    calls: list[tuple[str, int]] = []

    def pair(backing: str, seed: int) -> Any:
        calls.append((backing, seed))
        return None if backing == "hugetlb" else (1.0, 6.0)

    found = timed_pairs(["thp", "hugetlb", "4k"], pair)
    assert calls[:4] == [("4k", 0), ("thp", 0), ("hugetlb", 0), ("4k", 1)]
    assert list(found) == ["4k", "thp"], "what fails is left out"
    assert found["thp"] == [[1.0, 6.0]] * len(found["4k"])
    assert len(found["4k"]) > 2
