"""Renew what the notebooks are compared with: ``python -m tests.notebooks.expected [NAME]...``."""

from __future__ import annotations

import json
import os
import sys
import tempfile

from tests.notebooks.comparing import EXPECTED, NOTEBOOKS, name_of, renewed


def main(wanted: list[str]) -> None:
    """Run the notebooks named, or all, and write what they show."""
    for path in NOTEBOOKS:
        name = name_of(path)
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as home:
            changed = {"PERFLIB_HOME": home, "PERFLIB_PROGRESS": "none", "PERFLIB_SOLUTIONS": "1"}
            os.environ.update(changed)
            found = renewed(path)
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (EXPECTED / f"{name}.json").write_text(text, encoding="utf-8")
        ignored = [cell for cell, outputs in found.items() if outputs is None]
        print(f"{name}: {len(found)} cells; not compared: {', '.join(ignored) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
