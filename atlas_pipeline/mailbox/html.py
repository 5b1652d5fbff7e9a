"""HTML to text: no network, links kept, what a reader would not see left out.

Not here: which body is chosen (``mime.py``).
"""

from __future__ import annotations

import re

from inscriptis import Inscriptis
from inscriptis.model.config import ParserConfig
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

from atlas_pipeline.text import clean_text

MAX_HTML_CHARS = 1_000_000

_TAG = re.compile(r"<[^>]{0,2000}>")
_DECLARATION = re.compile(r"^\s*<\?xml[^>]{0,500}\?>")
_BLANK_LINES = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?:\.0*)?(?:px|pt|em|%)?\s*(?:;|!|$)"
    r"|opacity\s*:\s*0(?:\.0*)?\s*(?:;|!|$)|mso-hide\s*:\s*all",
    re.IGNORECASE,
)
_NEVER_TEXT = ("script", "style", "template", "noscript", "title")


def html_to_text(html: str) -> tuple[str, tuple[str, ...]]:
    """Return the visible text of a page, and remarks: ``html_hidden_text``, ``_truncated``, ``_unreadable``."""
    remarks: list[str] = []
    if len(html) > MAX_HTML_CHARS:
        html = html[:MAX_HTML_CHARS]
        remarks.append("html_truncated")
    source = _DECLARATION.sub("", clean_text(html))
    if not source.strip():
        return "", tuple(remarks)
    try:
        tree = document_fromstring(source, parser=HTMLParser(remove_comments=True, remove_pis=True, no_network=True))
        if _drop_hidden(tree):
            remarks.append("html_hidden_text")
        text = Inscriptis(tree, ParserConfig(display_links=True)).get_text()
        # libxml2 gives up beyond 256 levels and returns an empty page: better the text without its layout.
        if not text.strip() and "html_hidden_text" not in remarks:
            text = _TAG.sub(" ", source)
    except (etree.LxmlError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        remarks.append("html_unreadable")
        text = _TAG.sub(" ", source)
    return clean_text(_BLANK_LINES.sub("\n\n", text)).strip(), tuple(remarks)


def _drop_hidden(tree: HtmlElement) -> bool:
    """Take out what is never shown; True if an element that hides itself held text."""
    hidden = False
    for element in list(tree.iter(etree.Element)):
        if element.getparent() is None:
            continue
        if element.tag in _NEVER_TEXT:
            element.drop_tree()
        elif element.get("hidden") is not None or _HIDING.search(element.get("style") or ""):
            hidden = hidden or bool("".join(element.itertext()).strip())
            element.drop_tree()
    return hidden
