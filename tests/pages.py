"""What a page of HTML consists of."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"meta", "img", "br", "hr", "link"}


class Page(HTMLParser):
    """A page's tags, headings and words; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.headings: list[tuple[int, str]] = []
        self._data: list[str] = []
        self.feed(text)
        assert self.open == []
        self.text = "".join(self._data)
        self.words = " ".join(" ".join(self._data).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self._data.append(data)
        if any(re.fullmatch("h[1-6]", tag) for tag in self.open):
            level, text = self.headings[-1]
            self.headings[-1] = level, text + data

    def of(self, *names: str) -> list[dict[str, str]]:
        """The attributes of all tags of these names."""
        return [attributes for tag, attributes in self.tags if tag in names]

    def all(self, attribute: str) -> list[str]:
        """The values of an attribute, whichever tags have it."""
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]
