"""The machines that the guests are: the host builds them, the tests inside know what to find."""

from __future__ import annotations

from dataclasses import dataclass

MARK = "perflib.guest="  # on the kernel's command line: by it a test inside knows its guest


@dataclass(frozen=True)
class Layout:
    """One machine.

    Parameters
    ----------
    nodes
        The NUMA node of each CPU.
    smp
        How the CPUs make sockets, as qemu wants it.
    distances
        From each node to each.
    node_mib
        Memory of each node.
    """

    nodes: tuple[int, ...]
    smp: str
    distances: tuple[tuple[int, ...], ...]
    node_mib: int = 512

    def cpus(self, node: int) -> list[int]:
        """The CPUs of a node."""
        return [cpu for cpu, its in enumerate(self.nodes) if its == node]


# Linux numbers nodes in the order in which it meets their CPUs: the numbers cannot be mixed more.
LAYOUTS = {
    "two": Layout((0, 0, 1, 1), "4,sockets=2,cores=2,threads=1", ((10, 21), (21, 10))),
    "four": Layout(
        (0, 1, 2, 3),
        "4,sockets=4,cores=1,threads=1",
        ((10, 16, 22, 28), (16, 10, 28, 22), (22, 28, 10, 16), (28, 22, 16, 10)),
    ),
}
