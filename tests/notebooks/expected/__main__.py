"""Renew what the notebooks are compared with: ``python -m tests.notebooks.expected [NAME]...``.

Without a name, all of them. A notebook runs twice: here, and as on another machine; what differs
is not compared. Look at the difference in git: numbers change only where an analysis has changed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.notebooks.comparing import EXPECTED, NOTEBOOKS, name_of, renewed
from tests.notebooks.forked import ForkServer


def main(wanted: list[str]) -> None:
    """Run the notebooks named, or all, and write what they show."""
    os.environ["PERFLIB_CONFIG"] = "none"
    with ForkServer() as server:
        for path in NOTEBOOKS:
            name = name_of(path)
            if wanted and name not in wanted:
                continue
            with tempfile.TemporaryDirectory() as folder:
                found = renewed(server, path, Path(folder))
            text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
            (EXPECTED / f"{name}.json").write_text(text, encoding="utf-8")
            ignored = [cell for cell, outputs in found.items() if outputs is None]
            print(f"{name}: {len(found)} cells; not compared: {', '.join(ignored) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
