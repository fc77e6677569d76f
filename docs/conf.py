"""The site: ``make docs`` builds it from the checkout's root, so that links between files hold.

It shows recorded runs and measures nothing. A reader's browser loads nothing from elsewhere.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

_HERE = Path(__file__).parent
sys.path.insert(0, str(_HERE / "_ext"))

project = "perflib"
author = "the perflib developers"
project_copyright = f"{author}. Licence: BSD-3-Clause"
version = release = installed_version("perflib-jupyter")
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "site_notebooks",
    "site_figures",
    "site_commands",
    "site_math",
    "site_api",
    "site_lists",
]

root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "notebooks/**.ipynb",
    "benchmarks/README.md",
    "perflib/framework/published/README.md",
    "perflib/framework/recordings/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "build", "dist", "docs/_*", "**/.ipynb_checkpoints"]

# Markdown reads the same here and in the repository.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_update_mathjax = False
highlight_language = "none"
default_role = "py:obj"

# Notebooks are executed by site_notebooks, with recorded runs; widgets work in JupyterLab only.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_merge_streams = True

toc_object_entries = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_google_docstring = False

html_theme = "pydata_sphinx_theme"
html_title = "perflib"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_last_updated_fmt = ""
html_sidebars = {page: [] for page in ("docs/start", "docs/symptoms", "docs/gallery")}
html_theme_options = {
    "logo": {"text": "perflib"},
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "navbar_align": "left",
    "header_links_before_dropdown": 9,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "back_to_top_button": False,
}

# `sphinx -b linkcheck` opens every address that is named; it needs a network.
linkcheck_timeout = 20
