"""What the pages that commands have written need to be pages of the site."""

from __future__ import annotations

import re
from typing import Any

_BRACKETS = re.compile(r"\[([^\]]*)\](?![(\[])")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Quotations there leave words out, [...], which are no links."""
    return markdown if page.file.inclusion.is_in_nav() else _BRACKETS.sub(r"\\[\1\\]", markdown)
