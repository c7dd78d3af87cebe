"""A page as a parser sees it."""

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "input", "wbr"}


class Page(HTMLParser):
    """Tags in order, text and attributes of a page; fails on a tag that is not closed where it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.blocks: dict[str, Any] = {}
        self._block = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self._block = dict(attrs).get("id") or "" if ("type", "application/json") in attrs else ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._block:
            self.blocks[self._block] = json.loads(data)
            self._block = ""
        elif self.open[-1:] not in (["script"], ["style"]):
            self.text += data
