"""Files that take their place once they are written whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from perflib.model.errors import UserError
from perflib.store.files import replacing


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """A file next to the wanted one, which takes its place once it is written whole.

    Raises
    ------
    UserError
        It cannot be written there; what was there is unchanged.
    """
    place = path.resolve()  # a link stays one
    if place.exists() and not place.is_file():
        msg = f"{path} cannot be written: it is no ordinary file"
        raise UserError(msg)
    try:
        with replacing(place) as temporary:
            yield temporary
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise UserError(msg) from error
