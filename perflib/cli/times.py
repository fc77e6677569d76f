"""Times as they are typed: 100ms, 10s, 2h, 2w."""

from __future__ import annotations

import re

import click

from perflib.model.errors import UserError

_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def seconds(_ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """``500ms``, ``10s``, ``2min``, ``1h``, ``3d``, ``2w``; a number alone is in seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+) ?(ms|s|min|h|d|w|)", text)
    if match is None:
        msg = (
            f"{param.opts[0]} {text!r}: it is a number and ms, s, min, h, d or w, such as 500ms, "
            "10s or 2w"
        )
        raise UserError(msg)
    return float(match[1]) * _UNITS[match[2]]
