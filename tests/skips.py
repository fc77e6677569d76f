"""What the reasons of skipped tests have in common: lines that install something."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

_INSTALL = re.compile(
    r"(?P<command>\b(?:apt-get|dnf|zypper|pip|cargo) install|\bapk add|\bpacman -S|\bemerge) "
    r"(?P<packages>'[^']+'|(?:\$\([^)]*\)|[^,;:'\"()])+?(?=[,;:'\")]|\.?$|\. | \(| or | and ))"
)


def install_lines(reasons: Iterable[str]) -> str:
    """One line: how many tests each package would bring; empty where no reason names one.

    A reason names its package by the line that installs it; of several lines the first counts.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for reason in reasons:
        if match := _INSTALL.search(reason):
            found[match["command"]][match["packages"]] += 1
    commands = []
    for command, counts in found.items():
        packages = [f"{package} ({number})" for package, number in counts.most_common()]
        commands.append(f"{command} {', '.join(packages)}")
    return f"Packages would bring skipped tests: {'; '.join(commands)}" if commands else ""
