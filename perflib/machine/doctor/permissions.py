"""What the instruments must be allowed, and which option of a container grants it.

The doctor's check of it, and the table of docs/containers.md, come from `PERMISSIONS`,
which are data, in permissions.toml.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perflib.machine.doctor import attempts
from perflib.machine.doctor.checkup import Check, Patient

_RUNS_IMAGES = ("docker", "podman")
_APPTAINER = ("apptainer", "singularity")
# Allowed, or none is there; and what a kernel that lacks it answers, as podman's filter does, too.
_NOT_FORBIDDEN, _LACKING = ("", "ENOENT"), "ENOSYS"


@dataclass(frozen=True)
class Permission:
    """One thing that instruments do and a container, or a user's rights, may forbid.

    ``used_for``: what lacks it. ``image``: the option of ``podman run`` and ``docker run``.
    ``apptainer``, ``elsewhere``: what grants it to a container of Apptainer, and without any;
    empty where nothing is needed there. ``roots``: nobody but root expects it.
    """

    name: str
    call: str
    used_for: str
    image: str
    apptainer: str = ""
    elsewhere: str = ""
    roots: bool = False


PERMISSIONS = tuple(
    Permission(name, **row)
    for name, row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
)


def attempt() -> dict[str, str]:
    """Try each on this machine, in a process of its own; empty texts where it is allowed."""
    argv = [sys.executable, "-I", "-S", attempts.__file__]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    found: dict[str, str] = json.loads(answer.stdout) if answer.returncode == 0 else {}
    return found


def check_permissions(patient: Patient) -> Check:
    """One check: what the instruments need and may not do here, and what grants it."""
    if patient.root != Path("/"):
        return judged({}, patient.container, root=False)
    return judged(attempt(), patient.container, root=os.geteuid() == 0)


def judged(tried: Mapping[str, str], container: str | None, *, root: bool) -> Check:
    """What the attempts say; ``container`` is its kind, ``root`` whether this user is root."""
    values = tuple(
        {"name": one.name, "allowed": not tried[one.name], "answer": tried[one.name]}
        for one in PERMISSIONS
        if one.name in tried
    )
    missing = [
        one
        for one in PERMISSIONS
        if (answer := tried.get(one.name, "")) not in _NOT_FORBIDDEN
        and (container or answer != _LACKING)
        and _grants(one, container)
        and (root or not one.roots)
    ]
    where = f"in a {container} container: " if container else ""
    now = "; ".join(f"no {one.name} ({tried[one.name]}): {one.used_for}" for one in missing)
    return Check(
        "permissions",
        "unknown" if not tried else "warn" if missing else "good",
        where + (now or ("all that instruments need" if tried else "cannot be tried")),
        _command(missing, container),
        values,
    )


def _grants(permission: Permission, container: str | None) -> str:
    if container in _APPTAINER:
        return permission.apptainer
    return permission.image if container else permission.elsewhere


def _command(missing: list[Permission], container: str | None) -> str:
    """One line for all; equal options once."""
    ways = list(dict.fromkeys(_grants(one, container) for one in missing))
    if not container or container in _APPTAINER or not ways:
        return "; ".join(ways)
    options = [way for way in ways if way.startswith("--")]
    if "--privileged" in options:  # it brings the capabilities and lifts the filter
        options = [one for one in options if one == "--privileged" or one.startswith("--pid")]
    others = [way for way in ways if not way.startswith("--")]
    program = container if container in _RUNS_IMAGES else "what docker calls: docker"
    line = [f"(on the host) {program} run {' '.join(options)} ..."] if options else []
    return "; ".join([*line, *others])
