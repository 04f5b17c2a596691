"""The site of docs/: `make docs` builds it into build/docs, with every broken link an error."""

project = "Headrace"
copyright = "the Headrace developers"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Headrace"
html_static_path: list[str] = []
nitpicky = True
