"""Builds the site: ``make docs``. Warnings, broken internal links included, end the build."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "tvm_xengine"
author = "The tvm_xengine authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "site_parts.error_catalogue",
]
exclude_patterns = ["site_parts"]

# Links to headings, as GitHub makes them.
myst_heading_anchors = 3

# Options in messages begin with two hyphens, which stay two.
smartquotes = False

html_theme = "furo"
html_title = "tvm_xengine"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
html_show_sourcelink = False
html_show_copyright = False

autodoc_member_order = "groupwise"
# Parameters have their types in the signature; numpydoc explains what they mean.
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
maximum_signature_line_length = 80
