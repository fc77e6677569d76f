"""``python -m perflib``: the command line."""

from __future__ import annotations

from perflib.cli import main

main()
