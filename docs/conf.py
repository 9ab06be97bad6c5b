"""Configures Sphinx. `make docs` builds; tools/README.md says how."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "tools"), str(HERE.parent)]

_SOURCE = (HERE.parent / "src/unisono/__init__.py").read_text("utf-8")
_VERSION = re.search(r'^__version__ = "(.*)"', _SOURCE, re.M)
assert _VERSION

project = "unisono"
author = "The unisono authors"
copyright = author
version = release = _VERSION[1]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "shown_results",
    "reference",
    "generated_pages",
    "pictures",
    "search_index",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["tools", "README.md", "_templates"]
templates_path = ["_templates"]
nitpicky = True
# Types of other packages have no page here: nothing outside is asked for.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(jax|jaxlib|numpy|np|optax|rich|keras|flax|grain|typing|types|collections|"
        r"concurrent|contextlib|os|abc|enum|pathlib|datetime|builtins|logging|inspect)\..*",
    ),
    # Names in annotations that are private, or are of Python or NumPy and the like.
    (r"py:.*", r"unisono\._src\..*"),
    (r"py:.*", r"[A-Za-z_]*"),
    (
        r"py:.*",
        r"(jnp|argument_checks|checks|elements|nodes|variables|frames|storage|"
        r"tensor_shape|topology|options|description|report|source_agreement)\..*",
    ),
]
suppress_warnings = ["misc.highlighting_failure"]

# Pages
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / "build" / "docs" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

# The reference
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "alphabetical"
autodoc_preserve_defaults = True
# A longer signature has a line for each parameter.
maximum_signature_line_length = 72
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
default_role = "code"

# The site
html_theme = "pydata_sphinx_theme"
html_title = f"unisono {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [
    ("site.js", {"defer": "defer"}),
    ("search.js", {"defer": "defer"}),
]
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
# Pages without others beside them have no list of these.
_ALONE = ("index", "search", "performance/index", "differences", "changelog")
html_sidebars: dict[str, list[str]] = {name: [] for name in _ALONE}
html_theme_options = {
    "logo": {"text": f"unisono {version}"},
    "navbar_align": "left",
    "header_links_before_dropdown": 5,
    "navigation_depth": 2,
    "show_toc_level": 2,
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["footer-version"],
    "footer_end": [],
    "search_bar_text": "Search, or ask",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
