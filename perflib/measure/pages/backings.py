"""The page backings of a run: which are available, and the huge pages that some must reserve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from perflib.machine.settings.changes import settings
from perflib.measure.pages.text_backings import pool_pages, why_not
from perflib.model.errors import UserError, choose

__all__ = ["resolve", "with_pool"]

_FIRST_OF = ("thp", "collapse")  # what "huge" stands for
_OF_THE_POOL = ("hugetlb", "hugectl")


def _nothing_lacks(_name: str) -> str:
    return ""


def resolve(
    requested: Iterable[str],
    known: Sequence[str],
    pages: int,
    system: Mapping[str, str],
    lacking: Callable[[str], str] = _nothing_lacks,
) -> dict[str, Any]:
    """Which of the backings are available, and why the others are not.

    Parameters
    ----------
    requested
        As the user names them; ``huge`` stands for the first available of thp and collapse.
    known
        All names but ``huge``.
    pages
        How many pages of 2 MiB a backing that reserves them needs.
    system
        The settings that the user requested: they may switch huge pages on or off.
    lacking
        Why a backing is not available, if there is more to it than the machine.

    Returns
    -------
    ``backings``, those that are available, and ``absent``, the reason of each other.

    Raises
    ------
    UserError
        There is no such backing.
    """
    usable: list[str] = []
    absent: dict[str, str] = {}
    for word in dict.fromkeys(requested):
        if word not in (*known, "huge"):
            msg = f"backings: {choose('backing', word, [*known, 'huge'])}"
            raise UserError(msg)
        for name in _FIRST_OF if word == "huge" else [word]:
            with settings(system):
                reason = why_not(name, pages_needed=pages)
            reason = reason or lacking(name)
            if name in _OF_THE_POOL:
                reason = reason or _try_pool(system, pages)
            if not reason:
                usable.append(name)
                break
            absent[name] = reason
    return {"backings": list(dict.fromkeys(usable)), "absent": absent}


def with_pool(system: Mapping[str, str], backings: Iterable[str], pages: int) -> dict[str, str]:
    """The settings that were requested, and the huge pages of a backing that reserves them."""
    changed = dict(system)
    if set(_OF_THE_POOL) & set(backings):
        total, free = pool_pages()
        if free < pages:
            changed.setdefault("nr_hugepages", str(total + pages - free))
    return changed


def _try_pool(system: Mapping[str, str], pages: int) -> str:
    """Reserve the huge pages for a moment: the kernel may not find as many."""
    try:
        with settings(with_pool(system, _OF_THE_POOL, pages)):
            return ""
    except UserError as error:
        return str(error)
