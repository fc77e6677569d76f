"""A recording of threads as one HTML file, to be opened anywhere, without a kernel.

It asks no host for anything and draws with the script of the notebook's timeline. What is selected
is in its address, so that a link to the file leads to a view.
"""

from __future__ import annotations

from pathlib import Path

from perflib.instruments.threads.recording import Recording
from perflib.lab.report import template
from perflib.lab.threads import packing, page
from perflib.lab.threads.timeline import SCRIPT
from perflib.model.errors import UserError

_HERE = Path(__file__).parent


def write_html(recording: Recording, path: Path | str, title: str = "") -> None:
    """Write a page with the timeline, its filters and tables of threads, locks and functions.

    It has at most 10 MB, however long the recording: where not all intervals fit, the page has the
    longest, and says from which length on, and how wide its bins are.

    Parameters
    ----------
    recording
        What was recorded.
    path
        The file; its folder is made, and a file that is there is replaced.
    title
        Of the page; empty: "Threads over time".

    Raises
    ------
    UserError
        The file cannot be written, or the recording is damaged.

    Examples
    --------
    ``write_html(Recording.open(folder), "threads.html", "The event loop")``
    """
    path = Path(path)
    title = title or "Threads over time"
    scripts = [SCRIPT, *map(_text, ("standalone.js", "standalone_page.js"))]
    style = "\n".join([_text("timeline.css"), _text("standalone.css")])
    script = "\n".join(scripts)
    made = template("threads/standalone.html.j2").render(
        title=title,
        about=page.about(recording),
        script=script,
        style=style,
        parts=packing.packed(recording),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}. Name another file"
        raise UserError(msg) from error


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
