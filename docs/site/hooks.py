"""What the files in docs/ need to be pages of the site, and are better without elsewhere."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_BRACKETS = re.compile(r"\[([^\]]*)\](?![(\[])")
_BY_FILE = re.compile(r"\[([\w/]+\.md)\]\(([\w/]+\.md)((?:#[\w-]+)?)\)")
_titles: dict[str, str] = {}


def on_nav(nav: Any, **_: Any) -> None:
    _titles.update({page.file.src_uri: page.title for page in nav.pages if page.title})


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that show the name of a file show the title of the page.

    The pages that commands have written quote with words left out, [...]: these are no links.
    """
    if not page.file.inclusion.is_in_nav():
        markdown = _BRACKETS.sub(r"\\[\1\\]", markdown)
    folder = posixpath.dirname(page.file.src_uri)

    def by_title(found: re.Match[str]) -> str:
        title = _titles.get(posixpath.normpath(posixpath.join(folder, found[2])), found[1])
        return f"[{title}]({found[2]}{found[3]})"

    return _BY_FILE.sub(by_title, markdown)
