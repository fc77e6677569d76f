"""Machines of so many cores, as ``topology()`` describes them."""

from __future__ import annotations

from collections.abc import Mapping

from perflib.machine.hardware.topology import Cpu, Topology


def places(
    nodes: Mapping[int, int], siblings: Mapping[int, tuple[int, ...]] | None = None
) -> Topology:
    """Each CPU on its node; its hardware threads, where it has several."""
    siblings = siblings or {}
    return Topology(
        tuple(
            Cpu(cpu, cpu, 0, 0, node, siblings.get(cpu, (cpu,)), True, True, False)
            for cpu, node in nodes.items()
        ),
        (),
    )
