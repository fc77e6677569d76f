"""Why a kernel could not place code or data on the requested pages, in a sentence."""

from __future__ import annotations

import errno
import os
import tomllib
from pathlib import Path

from perflib.measure.pages.kinds import GIGANTIC_PAGES

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_STAGES = list(_WORDS["stages"])
_CAUSES_OF = {
    "hugetlb": _WORDS["causes_with_pool"],
    GIGANTIC_PAGES: _WORDS["causes_with_pool"],
    "loaded": _WORDS["causes_of_loaded"],
}


def explain(name: str, answer: int) -> str:
    """The sentence for an answer of the kernels' ``code_lay()``; empty for 0.

    Parameters
    ----------
    name
        The backing that was requested.
    answer
        ``stage * 65536 + errno``. Stages: 1 argument, 2 map, 3 advise, 4 collapse, 5 protect,
        6 move.

    Examples
    --------
    >>> explain("4k", 0)
    ''
    >>> explain("collapse", 4 * 65536 + errno.EINVAL)[:62]
    'could not put the copy on huge pages (MADV_COLLAPSE): Invalid '
    """
    if answer == 0:
        return ""
    at, number = divmod(answer, 1 << 16)
    code = errno.errorcode.get(number, str(number))
    error = f"{os.strerror(number)} ({code})"
    if not 1 <= at <= len(_STAGES):
        return f"code_lay() answered {answer}, which means no stage of it: {error}"
    stage = _STAGES[at - 1]
    what = _WORDS["stages"][stage]
    start = f"could not {what[3:]}" if at > 1 else f"code_lay() refused {what}"
    causes = (one.get(stage, {}).get(code) for one in (_CAUSES_OF.get(name, {}), _WORDS["causes"]))
    cause = next(filter(None, causes), "").format_map(_WORDS["texts"])
    return f"{start}: {error}: {cause}" if cause else f"{start}: {error}"
