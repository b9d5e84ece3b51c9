"""Settings of Sphinx for `nox -s docs`: a link or an anchor that leads nowhere is an error (-W, nitpicky)."""

import re
from pathlib import Path
from typing import Any

project = "ck-prefill-matrix"
extensions = ["myst_parser", "sphinx.ext.napoleon", "autoapi.extension"]
autoapi_dirs = ["../ckpm"]
autoapi_ignore = [
    f"*/{room}/*"
    for room in ("base", "bench", "cluster", "decode", "docker", "kernels", "reports", "suites", "timing", "workflows")
]
autoapi_generate_api_docs = False  # reference/api.md lists the objects
exclude_patterns = ["requirements.txt"]
myst_heading_anchors = 3  # levels of headings that a link may lead to
suppress_warnings = ["autoapi.python_import_resolution"]  # modules of the rooms left out
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of signatures that have no page
html_theme = "furo"
html_title = project
html_copy_source = False
# What screen readers and keyboards need, and Sphinx and furo leave out: pattern, replacement.
ACCESSIBLE = (
    ('role="heading">', 'role="heading" aria-level="2">'),
    ("<pre>", '<pre tabindex="0">'),  # it may be wider than its page, and is then scrolled
    ('<div class="(table-wrapper[^"]*)">', r'<div class="\1" tabindex="0">'),
    ('<aside class="(sidebar-drawer)">', r'<aside class="\1" aria-label="all pages">'),
    ('<aside class="(toc-drawer[^"]*)">', r'<aside class="\1" aria-label="this page">'),
    ('(?<!</h1>)<div id="search-results">', '<h1>Search</h1><div id="search-results">'),
)


def accessible(page: str) -> str:
    """The HTML of a page with what :data:`ACCESSIBLE` adds; a second time it adds nothing."""
    for pattern, replacement in ACCESSIBLE:
        page = re.sub(pattern, replacement, page)
    return page


def setup(app: Any) -> None:
    """Add it to every page that Sphinx wrote."""

    def add(app: Any, error: Exception | None) -> None:
        for file in Path(app.outdir).rglob("*.html"):
            file.write_text(accessible(file.read_text(encoding="utf-8")), encoding="utf-8")

    app.connect("build-finished", add)
