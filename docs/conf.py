"""Settings of Sphinx: `sphinx-build -W -b html docs docs/_build`."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
# The documentation is that of this checkout, whatever gradscope is installed.
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]

from gradscope import __version__  # noqa: E402

project = "gradscope"
author = "The gradscope authors"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "fenced_docstrings",
    "rule_pages",
]
exclude_patterns = ["_build", "_ext"]

html_theme = "furo"
html_title = "gradscope"

myst_enable_extensions = ["colon_fence"]
# Links to headings, as GitHub makes them.
myst_heading_anchors = 3

# Docstrings have code in single backticks.
default_role = "code"
# A signature shows `nn.Module`, not where torch defines it.
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
