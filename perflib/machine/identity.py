"""Which machine this is, even among machines of one make and copies of one image.

``machine_id`` is derived from /etc/machine-id as machine-id(5) wants it: a keyed hash that is
perflib's own, so that what is recorded cannot be matched with what others know of the machine.
Where there is none (containers, mostly), ``boot_id`` identifies it until the next boot.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perflib.machine.files import text
from perflib.model.errors import UserError

_PLACES = ("etc/machine-id", "var/lib/dbus/machine-id")
_BOOT = "proc/sys/kernel/random/boot_id"
_WORDS = {"fingerprint": "make", "machine_id": "machine-id", "boot_id": "boot"}
_SHOWN = 8  # digits of a hash, in a sentence


def identity(root: Path = Path("/")) -> dict[str, str | None]:
    """``machine_id`` and ``boot_id``, hashed; ``None`` where there is none."""
    machine_ids = (_hashed(root / place) for place in _PLACES)
    return {
        "machine_id": next((found for found in machine_ids if found), None),
        "boot_id": _hashed(root / _BOOT),
    }


def _hashed(path: Path) -> str | None:
    """The keyed hash of a file's 128 bits; ``None``: they are not there, or not set yet."""
    digits = (text(path) or "").replace("-", "")
    if not re.fullmatch("[0-9a-f]{32}", digits):
        return None
    return hmac.new(bytes.fromhex(digits), b"perflib", hashlib.sha256).hexdigest()[:32]


def check_same_machine(there: Mapping[str, Any], here: Mapping[str, Any], what: str) -> None:
    """Refuse to continue here what was begun elsewhere.

    Parameters
    ----------
    there, here
        What `perflib.machine.describe` said then, and says now. What an earlier perflib began has
        no ``boot_id`` and is identified by the fingerprint alone.
    what
        What was begun, for the sentence.

    Raises
    ------
    UserError
        It was begun on another machine, or nothing shows that it was not; says on which.
    """
    identified_by = ["fingerprint"]
    if "boot_id" in there:
        lasting = there["machine_id"] and here["machine_id"]
        identified_by += ["hostname", "machine_id" if lasting else "boot_id"]
    differing = [key for key in identified_by if there.get(key) != here.get(key)]
    if not differing:
        return
    msg = f"{what} was begun on {_named(there, differing)}, and this is {_named(here, differing)}: "
    if differing == ["boot_id"]:
        msg += (
            "without a machine-id (/etc/machine-id) a machine is known until it is booted again. "
        )
        msg += "Measure anew"
    else:
        msg += "go on with it there, or measure anew here"
    raise UserError(msg)


def _named(machine: Mapping[str, Any], differing: list[str]) -> str:
    facts = [f"{_WORDS[key]} {str(machine[key])[:_SHOWN]}" for key in differing if key in _WORDS]
    host = machine.get("hostname") or "an unnamed host"
    return f"{host} ({', '.join(facts)})" if facts else str(host)
