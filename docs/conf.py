"""Settings of Sphinx for `nox -s docs`: a link or an anchor that leads nowhere is an error (-W, nitpicky)."""

project = "ck-prefill-matrix"
extensions = ["myst_parser"]
exclude_patterns = ["requirements.txt"]
myst_heading_anchors = 3  # levels of headings that a link may lead to
nitpicky = True
html_theme = "furo"
html_title = project
html_copy_source = False
