"""What a futex is called, and of what kind it is, by its address and its waiters' stacks."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from perflib.instruments.threads.lock_names import kind_of, name_locks
from perflib.instruments.threads.states import KEY
from perflib.instruments.threads.symbols import Symbols


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ("main;take;pthread_mutex_lock;__lll_lock_wait", "mutex"),
        ("main;take;___pthread_mutex_lock", "mutex"),
        ("main;take;__pthread_mutex_lock_full;__futex_lock_pi64", "mutex"),
        ("main;pthread_cond_wait;__pthread_mutex_cond_lock", "mutex"),
        ("main;pthread_cond_wait;__futex_abstimed_wait_common", "condition"),
        ("main;std::condition_variable::wait;pthread_cond_clockwait", "condition"),
        ("main;pthread_rwlock_timedwrlock;__futex_abstimed_wait_common", "rwlock"),
        ("main;__new_sem_wait_slow64.constprop.0;__futex_abstimed_wait_common", "semaphore"),
        ("main;sem_timedwait", "semaphore"),
        ("main;pthread_barrier_wait", "barrier"),
        ("main;__pthread_clockjoin_ex;__futex_abstimed_wait_common", "join"),
        ("main;__pthread_once_slow", "other"),
        ("main;malloc;__lll_lock_wait_private", "mutex"),
        ("main;assemble;seminar", "other"),
        ("", "other"),
    ],
)
def test_kinds(stack: str, kind: str) -> None:
    assert kind_of(stack) == kind


class Static:
    """One variable, from 0x1000 to 0x1100."""

    def object_at(self, address: int) -> tuple[str, int] | None:
        return ("queue", address - 0x1000) if 0x1000 <= address < 0x1100 else None

    def objects_within(self, begin: int, end: int) -> list[str]:
        return ["hits", "queue"] if begin <= 0x1000 < end else ["queue"]


STACKS = [
    "main;take;pthread_mutex_lock;__lll_lock_wait",
    "main;sleep_on_it;pthread_cond_wait;__futex_abstimed_wait_common",
    "main;__pthread_clockjoin_ex;__futex_abstimed_wait_common",
    "[unknown]",
]


def named(*keys: tuple[int, int, int]) -> tuple[list[tuple[str, str]], list[int]]:
    """The names of futexes, given as address, process and stack; and which lock each is."""
    table = np.array([(address, 0, pid, stack) for address, pid, stack in keys], dtype=KEY)
    hints = {(1, 0x5000): "mutex", (1, 0x1000): "join"}
    locks, numbers = name_locks(table, STACKS, hints, lambda _: cast("Symbols", Static()))
    return [(lock.name, lock.kind) for lock in locks], numbers


def test_words_of_one_kind_in_a_variable_are_one_lock() -> None:
    locks, numbers = named((0x1058, 1, 1), (0x1000, 1, 0), (0x105C, 1, 1), (0x1000, 2, 0))
    assert sorted(locks) == [("queue", "condition"), ("queue", "mutex"), ("queue", "mutex")]
    assert numbers[0] == numbers[2]
    assert len({numbers[0], numbers[1], numbers[3]}) == 3


def test_what_else_is_on_the_line_of_a_variable_is_kept() -> None:
    table = np.array([(0x1008, 0, 1, 0), (0x1050, 0, 1, 1), (0x9000, 0, 1, 0)], dtype=KEY)
    locks, numbers = name_locks(table, STACKS, {}, lambda _: cast("Symbols", Static()))
    assert [locks[number].beside for number in numbers] == [("hits",), (), ()]


def test_words_of_a_condition_variable_on_the_heap_are_one_lock() -> None:
    locks, numbers = named((0x9028, 1, 1), (0x902C, 1, 1), (0x9100, 1, 1))
    assert locks == [("lock in sleep_on_it", "condition")] * 2
    assert numbers == [0, 0, 1]


def test_without_a_stack_the_address_and_the_hints_are_left() -> None:
    locks, _ = named((0x5000, 1, -1), (0x6000, 1, 3), (0x1000, 1, -1))
    assert set(locks) == {("0x5000", "mutex"), ("0x6000", "other"), ("pthread_join", "join")}
