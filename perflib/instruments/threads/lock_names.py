"""The names and kinds of locks, from their addresses and from the stacks that wait for them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from perflib.instruments.threads.formats import Lock
from perflib.instruments.threads.symbols import Symbols

_KINDS = (  # of the innermost function that is one of these
    (re.compile(r"pthread_(\w*_)?mutex|futex_lock_pi"), "mutex"),
    (re.compile(r"pthread_(\w*_)?cond|cnd_(timed)?wait"), "condition"),
    (re.compile(r"pthread_(\w*_)?rwlock"), "rwlock"),
    (re.compile(r"pthread_(\w*_)?barrier"), "barrier"),
    (re.compile(r"pthread_\w*join|thrd_join"), "join"),
    (re.compile(r"^(__)?(new_)?sem_\w*wait"), "semaphore"),
    (re.compile(r"pthread_once"), "other"),
)
_LOW_LEVEL = re.compile(r"lll_(\w*_)?lock")
_NOT_A_CALLER = re.compile(
    r"pthread_|lll_|futex|^(__)?(new_)?sem_|^std::|^_ZN?K?St|__gthread|^cnd_|^mtx_|^thrd_|"
    r"^\[unknown\]$|^(syscall|\[.*\])$"
)
LINE_BYTES = 64
_NEAR_BYTES = 16  # between two words of one condition variable or read-write lock
_MANY_WORDS = ("condition", "rwlock", "barrier")


def kind_of(stack: str) -> str:
    """What kind of lock a thread with this stack waits for; ``other`` where it is unknown."""
    frames = stack.split(";")[::-1]
    for frame in frames:
        for function, kind in _KINDS:
            if function.search(frame):
                return kind
    return "mutex" if any(_LOW_LEVEL.search(frame) for frame in frames) else "other"


class Locks:
    """The locks of a recording, by number.

    A lock in a static variable has the variable's name, and all of one kind in it are one lock.
    Another is named by its caller. All joins of a process are one lock.

    Attributes
    ----------
    locks : list of Lock
        So far, by their numbers.
    """

    def __init__(self) -> None:
        self.locks: list[Lock] = []
        self._numbers: dict[tuple[int, int, str, int], int] = {}

    def number(
        self,
        symbols: Symbols,
        lock: Lock,
        stack: str,
        *,
        program: int = 0,
        place: int | None = None,
    ) -> int:
        """The number of a lock.

        Parameters
        ----------
        symbols
            The names of its process's addresses.
        lock
            Its kind, address and process; the name is found here.
        stack
            A stack that waits for it; "" if none is known.
        program
            Which of the programs that the process ran.
        place
            Where its first word is, if that is not at its address.
        """
        found = symbols.object_at(lock.address)
        if lock.kind == "join":
            name, place = "pthread_join", 0
        elif found is not None:
            name, place = found[0], lock.address - found[1]
        else:
            name = f"{lock.address:#x}" if lock.address else "futex"
            if caller := _caller(stack):
                name = f"lock in {caller}"
            place = lock.address if place is None else place
        key = (lock.pid, program, lock.kind, place)
        if key not in self._numbers:
            self._numbers[key] = len(self.locks)
            beside = _beside(symbols, lock.address, found[0]) if found is not None else ()
            self.locks.append(replace(lock, name=name, beside=beside))
        return self._numbers[key]


def _beside(symbols: Symbols, address: int, name: str) -> tuple[str, ...]:
    """The other variables on the line of a lock in a static variable."""
    begin = address // LINE_BYTES * LINE_BYTES
    found = symbols.objects_within(begin, begin + LINE_BYTES)
    return tuple(one for one in found if one != name)


def _caller(stack: str) -> str:
    frames = (frame for frame in stack.split(";")[::-1] if not _NOT_A_CALLER.search(frame))
    return next(frames, "")


def name_locks(
    keys: npt.NDArray[Any],
    stacks: Sequence[str],
    hints: Mapping[tuple[int, int], str],
    symbols: Callable[[int], Symbols],
) -> tuple[list[Lock], list[int]]:
    """The locks that futexes belong to.

    Parameters
    ----------
    keys
        The futexes (`perflib.instruments.threads.states.KEY`).
    stacks
        The texts of their stacks.
    hints
        Kinds of futexes (process, address) whose stacks do not show them.
    symbols
        The names of a process's addresses.

    Returns
    -------
    tuple
        The locks, and of each futex the number of its lock.
    """
    locks, symbols_of = Locks(), functools.cache(symbols)
    numbers = [0] * len(keys)
    last: dict[tuple[int, str, str], tuple[int, int]] = {}  # the word before: its address and lock
    for at in sorted(range(len(keys)), key=lambda i: int(keys["address"][i])):
        pid, address, number = (int(keys[name][at]) for name in ("pid", "address", "stack"))
        stack = stacks[number] if number >= 0 else ""
        kind = kind_of(stack)
        kind = hints.get((pid, address), kind) if kind == "other" else kind
        place = address
        if symbols_of(pid).object_at(address) is None:
            word = (pid, kind, _caller(stack))
            before, place = last.get(word, (address - _NEAR_BYTES - 1, address))
            if kind not in _MANY_WORDS or address - before > _NEAR_BYTES:
                place = address
            last[word] = (address, place)
        lock = Lock("", kind, address, pid)
        numbers[at] = locks.number(symbols_of(pid), lock, stack, place=place)
    return locks.locks, numbers
