from __future__ import annotations

import psutil
import pytest

from perflib.lab.neighbour import busy_neighbour
from perflib.machine.hardware.topology import topology
from perflib.model.errors import UserError


def test_the_neighbour_sits_on_the_core_and_goes_away() -> None:
    cpu = topology().allowed_cpus()[-1]
    with busy_neighbour(cpu, share=0.2):
        (child,) = (
            child
            for child in psutil.Process().children()
            if "thread_time" in "".join(child.cmdline())
        )
        assert child.cpu_affinity() == [cpu]
    assert not child.is_running()


def test_impossible_neighbours() -> None:
    with pytest.raises(UserError, match=r"between 0 and 1"), busy_neighbour(0, share=1.5):
        pass
    with pytest.raises(UserError, match="cpu99999"), busy_neighbour(99999, share=0.5):
        pass
