"""Machines of one make are distinguished, and what is recorded of one says nothing about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perflib.machine.describe import describe
from perflib.machine.identity import check_same_machine, identity
from perflib.model.errors import UserError
from tests.machine.trees import write

MACHINE_ID = "0123456789abcdef0123456789abcdef"
BOOT_ID = "11111111-2222-3333-4444-555555555555"
BOOT = "proc/sys/kernel/random/boot_id"

HERE = {"hostname": "node17", "fingerprint": "a" * 16, "machine_id": "b" * 32, "boot_id": "c" * 32}


def test_a_machine_id_is_never_recorded_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, {"etc/machine-id": MACHINE_ID, BOOT: BOOT_ID})
    found = identity(tmp_path)
    # printf perflib | openssl dgst -sha256 -mac HMAC -macopt hexkey:0123...cdef
    assert found["machine_id"] == "8462cd5a876a42689a9b2c1f74e93525"
    assert found["boot_id"] not in (None, found["machine_id"])
    recorded = json.dumps(describe(tmp_path)).replace("-", "")
    assert MACHINE_ID not in recorded
    assert BOOT_ID.replace("-", "") not in recorded
    assert found["machine_id"] in recorded


@pytest.mark.parametrize("content", ["", "uninitialized", "0123", "x" * 32])
def test_a_machine_id_that_is_not_set_is_none(tmp_path: Path, content: str) -> None:
    assert identity(tmp_path) == {"machine_id": None, "boot_id": None}
    write(tmp_path, {"etc/machine-id": content})
    assert identity(tmp_path)["machine_id"] is None
    write(tmp_path, {"var/lib/dbus/machine-id": MACHINE_ID})
    assert identity(tmp_path)["machine_id"] is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"boot_id": "d" * 32},  # it was booted since
        {"kernel": "7.0"},
        {"boot_id": None},
        {"machine_id": None},  # from within a container, in the same boot
    ],
)
def test_the_same_machine_is_recognised(changed: dict[str, Any]) -> None:
    check_same_machine(HERE, {**HERE, **changed}, "run r")
    check_same_machine({**HERE, **changed}, HERE, "run r")


@pytest.mark.parametrize(
    ("changed", "here"),
    [
        ({"hostname": "node18"}, "node17, and this is node18"),
        (
            {"machine_id": "d" * 32},
            r"node17 \(machine-id bbbbbbbb\), and this is node17 \(machine-id dddddddd\)",
        ),
        ({"fingerprint": "d" * 16}, r"node17 \(make aaaaaaaa\), and this is node17 \(make dddddd"),
        (
            {"machine_id": None, "boot_id": "d" * 32},
            r"node17 \(boot cccccccc\), and this is node17 \(boot dddddddd\): without a machine-id",
        ),
    ],
)
def test_another_machine_is_refused_and_both_are_named(changed: dict[str, Any], here: str) -> None:
    with pytest.raises(UserError, match=f"run r was begun on {here}"):
        check_same_machine(HERE, {**HERE, **changed}, "run r")


def test_what_an_earlier_perflib_began_is_known_by_its_make() -> None:
    old = {"hostname": "node17", "fingerprint": "a" * 16}
    check_same_machine(old, {**HERE, "hostname": "node18"}, "run r")
    with pytest.raises(UserError, match="make aaaaaaaa"):
        check_same_machine(old, {**HERE, "fingerprint": "e" * 16}, "run r")
