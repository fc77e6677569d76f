"""Where the program's five variables are, and which of them look alike."""

from __future__ import annotations

from collections.abc import Mapping

PAGE = 4096
STACK, STATIC = ("inc", "g"), ("i", "j", "k")
_WIDTH = 4  # bytes of an access: all five variables are of type int


def pairs_of(addresses: Mapping[str, int]) -> list[str]:
    """Which variable on the stack looks like which static one: ``inc-i``, ``g-j`` ...

    An access is 4 bytes wide, so two look alike where they are less than 4 bytes apart in the low
    12 bits; aligned as they are that is where these agree.

    >>> pairs_of({"i": 0x4010, "j": 0x4014, "k": 0x4018, "g": 0x7FFE101C, "inc": 0x7FFE1018})
    ['inc-k']
    """
    return [
        f"{stack}-{static}"
        for stack in STACK
        for static in STATIC
        if (addresses[stack] - addresses[static] + _WIDTH - 1) % PAGE < 2 * _WIDTH - 1
    ]


def with_stack_lower(addresses: Mapping[str, int], by_bytes: int) -> dict[str, int]:
    """The addresses in an environment that is so much larger: it pushes down what is on the stack.

    >>> with_stack_lower({"i": 100, "g": 900}, 16)
    {'i': 100, 'g': 884}
    """
    return {name: at - by_bytes * (name in STACK) for name, at in addresses.items()}
