from __future__ import annotations

from pathlib import Path

import pytest

from perflib.machine.hardware.caches import Cache, CacheKind
from perflib.machine.hardware.cpuid import Signature, signature
from perflib.machine.hardware.known_tlbs import published_tlbs
from perflib.machine.hardware.microarch import described, microarchitecture, processor
from tests.machine import trees


@pytest.mark.parametrize(
    ("numbers", "name"),
    [
        (("GenuineIntel", 6, 0x2A, 7), "Sandy Bridge"),
        (("GenuineIntel", 6, 0x97, 2), "Golden Cove + Gracemont (Alder Lake)"),
        (("GenuineIntel", 6, 0xCF, 2), "Raptor Cove (Emerald Rapids)"),
        (("AuthenticAMD", 0x19, 0x61, 2), "Zen 4 (Raphael)"),
        (("AuthenticAMD", 0x19, 0x01, 1), "Zen 3 (Milan)"),
        (("AuthenticAMD", 0x17, 0x08, 2), "Zen+ (Pinnacle Ridge)"),
        (("HygonGenuine", 0x18, 0, 1), "Zen (Hygon Dhyana)"),
        (("GenuineIntel", 6, 0xFE, 3), "unknown (GenuineIntel, family 6, model 254, stepping 3)"),
        (("GenuineIntel", 15, 4, 1), "unknown (GenuineIntel, family 15, model 4, stepping 1)"),
        (("unknown vendor", None, None, None), None),
    ],
)
def test_names(numbers: tuple[str, int | None, int | None, int | None], name: str | None) -> None:
    found = str(microarchitecture(Signature(*numbers)))
    assert found == name if name else found.startswith("unknown (unknown vendor")


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((48, 32, 512), ""),
        ((48, 64, 2048), "its caches are those of Redwood Cove (L1d 48 KiB"),
        ((48, 32, 2048), "those of Golden Cove or Raptor Cove"),
        ((99, 32, 2048), "not that core's"),
        ((32, 32, 4096), ""),  # QEMU's own
        ((48, 32, 0), ""),  # not known whole
    ],
)
def test_a_name_whose_caches_are_others(sizes: tuple[int, int, int], said: str) -> None:
    """A hypervisor that gives the family and model of Rocket Lake."""
    kinds: tuple[CacheKind, ...] = ("data", "instruction", "unified")
    found = [
        Cache(1 + (kind == "unified"), kind, size << 10, None, None, None, ())
        for kind, size in zip(kinds, sizes, strict=True)
    ]
    leaves = {(0x0, 0): (0x1B, 0x756E6547, 0x6C65746E, 0x49656E69), (0x1, 0): (0x000A0671, 0, 0, 0)}
    name = str(processor(leaves=leaves, found=found))
    assert name.startswith("presents itself as Cypress Cove (Rocket Lake), but" if said else "Cyp")
    assert said in name
    assert not published_tlbs(name).tlbs


def test_a_run_of_then_has_the_name_of_today() -> None:
    machine = {
        "vendor": "GenuineIntel", "family": 6, "model": 0xA7, "stepping": 1,
        "microarchitecture": "Cypress Cove", "product": "Rocket Lake",
        "caches": [{"level": 1, "kind": "data", "size_bytes": 49152},
                   {"level": 1, "kind": "instruction", "size_bytes": 65536},
                   {"level": 2, "kind": "unified", "size_bytes": 2 << 20}],
    }  # fmt: skip
    assert "those of Redwood Cove" in described(machine)["microarchitecture"]
    assert described({**machine, "caches": []}) == {**machine, "caches": []}
    assert described({"hostname": "x"}) == {"hostname": "x"}


def test_cpuinfo_serves_without_cpuid(tmp_path: Path) -> None:
    assert signature(trees.epyc(tmp_path)) == Signature("AuthenticAMD", 23, 49, 0)
    assert signature(tmp_path / "nowhere") == Signature("unknown vendor", None, None, None)
