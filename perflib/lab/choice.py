"""A table whose rows can be chosen by a click or a key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anywidget
import traitlets


class Choice(anywidget.AnyWidget):
    """A table; ``chosen`` has the places of the rows that are chosen, which may be observed.

    Parameters
    ----------
    many
        Several rows may be chosen; else one, and a click on it drops it.
    """

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    data = traitlets.Dict().tag(sync=True)
    chosen = traitlets.List(traitlets.Int()).tag(sync=True)
    many = traitlets.Bool(False).tag(sync=True)

    def show(
        self,
        caption: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        prose: Sequence[int] = (),
        chosen: Sequence[int] = (),
    ) -> None:
        """Show other rows.

        Parameters
        ----------
        caption
            What the table is, and what a click does.
        columns
            The columns' titles.
        rows
            The texts of each row.
        prose
            The columns with texts; the others have numbers, which stand to the right.
        chosen
            The places of those that are chosen.
        """
        with self.hold_sync():
            self.chosen = list(chosen)
            self.data = {
                "caption": caption,
                "columns": list(columns),
                "rows": [list(row) for row in rows],
                "prose": list(prose),
            }
