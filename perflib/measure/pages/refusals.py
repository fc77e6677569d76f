"""Why a kernel could not place code or data on the requested pages, in a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from perflib.measure.pages.kinds import GIGANTIC_PAGES

_ARGUMENT, _MAP, _ADVISE, _COLLAPSE, _PROTECT, _MOVE = range(1, 7)
_STAGES = {
    _ARGUMENT: "its arguments",
    _MAP: "to map memory for the copy",
    _ADVISE: "to tell the kernel which pages the copy wants (madvise)",
    _COLLAPSE: "to put the copy on huge pages (MADV_COLLAPSE)",
    _PROTECT: "to make the copy executable (mprotect)",
    _MOVE: "to move the copy over the text (mremap)",
}
_EMPTY_POOL = (
    "the pool of huge pages has too few left: name it in backings and run as root, and "
    "perflib reserves what it needs and gives it back"
)
_NO_COLLAPSE = (
    "this kernel is older than 6.1, or was built without transparent huge pages, or they are "
    "forbidden to this process"
)
_FRAGMENTED = (
    "there are no 2 MiB of free memory in one piece: it is fragmented, or a control group allows "
    "no more. As root: echo 1 | sudo tee /proc/sys/vm/compact_memory"
)
_NO_MEMORY = "there is not enough memory, or a limit (ulimit -v, a control group) allows no more"
_FORBIDDEN = (
    "a security policy forbids memory that was written to become executable (SELinux execmem, "
    "systemd's MemoryDenyWriteExecute, a seccomp filter)"
)
_MISALIGNED = (
    "the loader did not align the library to 2 MiB, as the C library does from glibc 2.35 on; or "
    "the pattern or its size is none that was built"
)
_NO_RESERVED = "this kernel has no pool of huge pages (CONFIG_HUGETLBFS)"
_LIMITED_POOL = (
    "a control group allows this process no page of the pool (hugetlb.2MB.max, hugetlb.1GB.max), "
    "as containers do that were not given any"
)
_CAUSES: Mapping[tuple[int, int], str] = {
    (_ARGUMENT, errno.EINVAL): _MISALIGNED,
    (_ARGUMENT, errno.ERANGE): "there is less of this code than was requested",
    (_MAP, errno.ENOMEM): _NO_MEMORY,
    (_ADVISE, errno.EINVAL): "this kernel was built without transparent huge pages",
    (_COLLAPSE, errno.EINVAL): _NO_COLLAPSE,
    (_COLLAPSE, errno.EAGAIN): _FRAGMENTED,
    (_COLLAPSE, errno.ENOMEM): _FRAGMENTED,
    (_COLLAPSE, errno.EBUSY): _FRAGMENTED,
    (_PROTECT, errno.EACCES): _FORBIDDEN,
    (_PROTECT, errno.EPERM): _FORBIDDEN,
    (_PROTECT, errno.ENOMEM): _NO_MEMORY,
    (_MOVE, errno.ENOMEM): _NO_MEMORY,
}
_CAUSES_WITH_POOL: Mapping[tuple[int, int], str] = {
    (_MAP, errno.ENOMEM): _EMPTY_POOL,
    (_MAP, errno.EINVAL): _NO_RESERVED,
    (_MAP, errno.ENODEV): _NO_RESERVED,
    (_MAP, errno.ENOSYS): _NO_RESERVED,
    (_MAP, errno.EFAULT): _LIMITED_POOL,
    (_MOVE, errno.EINVAL): "Linux before 5.16 cannot move pages of the pool",
}
_NO_FILE = "the library's file is no longer what the loader mapped: it was deleted or replaced"
_CAUSES_OF_LOADED: Mapping[tuple[int, int], str] = {
    (_ARGUMENT, errno.EINVAL): (
        "no loader mapped this pattern, whose code is made when it is placed; or it was never built"
    ),
    (_MAP, errno.ENOENT): _NO_FILE,
    (_MAP, errno.ESTALE): _NO_FILE,
}
_CAUSES_OF = {
    "hugetlb": _CAUSES_WITH_POOL,
    GIGANTIC_PAGES: _CAUSES_WITH_POOL,
    "loaded": _CAUSES_OF_LOADED,
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
    stage, number = divmod(answer, 1 << 16)
    what = _STAGES.get(stage)
    error = f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"
    if what is None:
        return f"code_lay() answered {answer}, which means no stage of it: {error}"
    start = f"code_lay() refused {what}" if stage == _ARGUMENT else f"could not {what[3:]}"
    key = (stage, number)
    cause = _CAUSES_OF.get(name, {}).get(key) or _CAUSES.get(key)
    return f"{start}: {error}: {cause}" if cause else f"{start}: {error}"
