"""The switches of a machine that change what a measurement sees: one table, read by all.

The table is knobs.toml.

The doctor shows what each is and what it costs; ``measure.conditions`` sets those that the user
names and puts them back. Nothing here writes.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.machine.settings.guard import read_setting
from perflib.model.errors import UserError, choose


@dataclass(frozen=True)
class Knob:
    """One switch: where it is, what it may be, and what it does to a measurement.

    Parameters
    ----------
    name
        What the user calls it (``governor``).
    patterns
        Where it may be, as globs below the root. The first that names an existing file is the
        one; it may name several files (a governor for each frequency domain).
    help
        What the switch does.
    cost
        What it does to a measurement, and why.
    values
        What it may be set to; ``None``: an integer from ``minimum`` up.
    inverted
        The patterns of files that say the opposite (``no_turbo``).
    """

    name: str
    patterns: tuple[str, ...]
    help: str
    cost: str
    values: tuple[str, ...] | None = None
    minimum: int = 0
    on_off: bool = False
    inverted: tuple[str, ...] = ()

    def paths(self, root: Path = Path("/")) -> list[Path]:
        """The switch's files that exist on this machine; empty where it has no such switch."""
        for pattern in self.patterns:
            found = sorted(path for path in root.glob(pattern) if path.is_file())
            if found:
                return found
        return []

    def read(self, root: Path = Path("/")) -> str | None:
        """Its value now, as a user says it; ``None`` where there is no such switch.

        Where its files disagree: ``mixed (performance, powersave)``.
        """
        found = {self.decode(self.current(path), path) for path in self.paths(root)}
        readable = sorted(value for value in found if value)
        if len(readable) > 1:
            return f"mixed ({', '.join(readable)})"
        return readable[0] if readable else None

    def current(self, path: Path) -> str:
        """What must be written into ``path`` to put the switch back to what it is now.

        Empty where the file cannot be read.
        """
        try:
            return read_setting(str(path))
        except OSError:
            return ""

    def encode(self, value: str, path: Path) -> str:
        """What to write into ``path`` (one of ``paths()``) for a value as a user says it.

        Raises
        ------
        UserError
            The switch has no such value.
        """
        value = self.check(value)
        if not self.on_off:
            return value
        return str(int((value == "on") != self._inverts(path)))

    def decode(self, text: str, path: Path) -> str:
        """What the text of ``path`` (see ``current``) means, as a user says it."""
        if self.on_off and text in ("0", "1"):
            return "on" if (text == "1") != self._inverts(path) else "off"
        return text

    def check(self, value: str) -> str:
        """``value`` if the switch may have it.

        Raises
        ------
        UserError
            It may not; the message names what it may be.
        """
        value = str(value).strip()
        if self.values is not None:
            if value not in self.values:
                raise UserError(choose(f"value of {self.name}", value, self.values))
        elif not re.fullmatch(r"-?\d+", value) or int(value) < self.minimum:
            msg = f"{self.name}={value!r}: it takes an integer from {self.minimum} up"
            raise UserError(msg)
        return value

    def command(self, value: str, root: Path = Path("/")) -> str:
        """The shell command that sets it, for the files that this machine has."""
        found = self.paths(root)
        pattern = next(
            (p for p in self.patterns if found and found[0] in root.glob(p)), self.patterns[0]
        )
        if pattern.startswith("proc/sys/"):
            name = pattern.removeprefix("proc/sys/").replace("/", ".")
            return f"sudo sysctl -w {name}={self.check(value)}"
        return f"echo {self.encode(value, root / pattern)} | sudo tee /{pattern}"

    def _inverts(self, path: Path) -> bool:
        return any(path.match(pattern) for pattern in self.inverted)


def _knob(name: str, row: dict[str, Any]) -> Knob:
    for key in ("patterns", "values", "inverted"):
        if key in row:
            row[key] = tuple(row[key])
    return Knob(name, **row)


KNOBS = {
    name: _knob(name, row)
    for name, row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}


def knob(name: str) -> Knob:
    """The switch of that name.

    Raises
    ------
    UserError
        There is none; the message names the nearest.
    """
    if name not in KNOBS:
        raise UserError(choose("system setting", name, KNOBS))
    return KNOBS[name]
