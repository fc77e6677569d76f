"""Texts in HTML: what is data stays data, and what no one would see is written out."""

from __future__ import annotations

import base64
import html
import re

# Control characters, marks without width or that turn the direction of writing, and halves of
# characters, which no file can hold; not line ends, tabs and spaces of any width.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def seen(text: str) -> str:
    r"""A text with what no one would see in it as Python writes it.

    >>> seen("\x1b[1m\u202eä\n")
    '\\x1b[1m\\u202eä\n'
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escape(text: str) -> str:
    """A text as an element or an attribute may have it.

    >>> escape('<a b="c">&')
    '&lt;a b=&quot;c&quot;&gt;&amp;'
    """
    return html.escape(seen(text))


def image(png: bytes, alt: str) -> str:
    """A picture within a page, with what it shows in words."""
    source = base64.b64encode(png).decode()
    return f'<img src="data:image/png;base64,{source}" alt="{escape(alt)}">'
