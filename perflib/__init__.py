"""Why is this machine, this core, this buffer slower than it should be?

>>> import perflib as pl
>>> kv = pl.experiment("kv_per_core")  # its question, parameters, presets
>>> run = kv.run(events=50, preset="quick")  # doctest: +SKIP
>>> run.findings, run.table("drift"), run.plot("drift")  # doctest: +SKIP

``__init__.pyi`` lists the whole public interface. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _public() -> dict[str, tuple[str, str]]:
    """Of each public name the module where it lives, and its name there."""
    import ast

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [one for one in stub.body if isinstance(one, ast.ImportFrom)]
    return {
        name.asname: (str(one.module), name.name)
        for one in imports
        for name in one.names
        if name.asname
    }


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__all__":
        return __dir__()
    if name == "__version__":
        from importlib.metadata import version

        return version("perflib-jupyter")
    if name not in _public():
        msg = f"module 'perflib' has no attribute {name!r}"
        raise AttributeError(msg)
    from perflib.model.extras import installed

    path, inside = _public()[name]
    with installed():
        module = importlib.import_module(path)
        value = getattr(module, inside, None) or importlib.import_module(f"{path}.{inside}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_public())
