"""Settings of Sphinx for `nox -s docs`: a link or an anchor that leads nowhere is an error (-W, nitpicky)."""

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
