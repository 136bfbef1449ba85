"""Sphinx configuration."""

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.ext import autosummary
from sphinx.ext.napoleon import NumpyDocstring

sys.path.append(str(Path(__file__).parent / "_ext"))

project = "sccountsdiff"
author = "sccountsdiff developers"
copyright = f"2026, {author}"
release = version = installed_version(project)

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_autodoc_typehints",  # after napoleon
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.bibtex",
    "generated",  # docs/_ext
    "tutorials",  # docs/_ext
    "values",  # docs/_ext
]
exclude_patterns = ["_build", "_generated", "**.ipynb_checkpoints"]
templates_path = ["_templates"]
default_role = "literal"

# Links into other projects need the network: only the public build makes them.
if os.environ.get("READTHEDOCS"):
    extensions.append("sphinx.ext.intersphinx")
intersphinx_mapping = {
    "anndata": ("https://anndata.readthedocs.io/en/stable/", None),
    "h5py": ("https://docs.h5py.org/en/stable/", None),
    "lightning": ("https://lightning.ai/docs/pytorch/stable/", None),
    "matplotlib": ("https://matplotlib.org/stable/", None),
    "mudata": ("https://mudata.readthedocs.io/stable/", None),
    "numpy": ("https://numpy.org/doc/stable/", None),
    "pandas": ("https://pandas.pydata.org/docs/", None),
    "python": ("https://docs.python.org/3/", None),
    "scanpy": ("https://scanpy.readthedocs.io/en/stable/", None),
    "scipy": ("https://docs.scipy.org/doc/scipy/", None),
    "scvi-tools": ("https://docs.scvi-tools.org/en/stable/", None),
    "torch": ("https://docs.pytorch.org/docs/stable/", None),
}
nitpicky = True
_external = "anndata|collections|h5py|lightning|logging|matplotlib|mudata|numpy|pandas|pathlib|scanpy|scipy|scvi|sparse|torch|typing"
nitpick_ignore_regex = [("py:.*", rf"({_external})(\..*)?"), ("py:data", "Ellipsis")]
# What is no type but looks like one: numbers of default values, and types of files that are not on the page.
nitpick_ignore_regex += [("py:class", r"[0-9.]+\}+\)*|Tensor|Standard deviation|.*torch_training\.Network")]
nitpick_ignore_regex += [("py:data", "OBSERVED|NOISED|TASKS")]

autosummary_generate = True
autosummary.WELL_KNOWN_ABBREVIATIONS += ("Alg.", "App.", "Eq.", "Prop.", "Sec.")  # they end no sentence
autodoc_member_order = "bysource"
# Members of our own mixins are shown, those of these bases are not.
autodoc_default_options = {
    "members": True,
    "inherited-members": "UnsupervisedTrainingMixin, BaseModelClass, Module, LightningModule, ModelHooks, DataHooks, "
    "CheckpointHooks, HyperparametersMixin, Generic, tuple, object",
}
autodoc_typehints_format = "short"
always_use_bars_union = True
typehints_defaults = "braces"
typehints_document_rtype_none = False
napoleon_google_docstring = False
napoleon_use_param = True


def _parse_returns(self, section):
    """Read "Returns" as prose, since types come from annotations; sphinx-autodoc-typehints opens it with a lone colon."""
    lines = self._dedent([line for line in self._consume_to_next_section() if line.strip() != ":"])
    return [*self._format_block(":returns: ", self._strip_empty(lines)), ""]


NumpyDocstring._parse_returns_section = _parse_returns

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "html_image"]
myst_heading_anchors = 3
nb_execution_mode = "off"

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_context = {"default_mode": "auto"}  # the theme complains in the console if it is not told
html_css_files = ["custom.css"]
html_theme_options = {"show_toc_level": 2}
