"""Roles for numbers and statements that come from saved results: see ``results.py``."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from results import RESULTS, ResultError
from sphinx.errors import ExtensionError
from statements import check, evaluate

EXTENSIONS = Path(__file__).parent


def _role(function):
    def role(name, rawtext, text, lineno, inliner, options=None, content=None):
        env = inliner.document.settings.env
        for path in [*RESULTS.glob("*.csv"), *EXTENSIONS.glob("*.py")]:
            env.note_dependency(str(path))
        try:
            return [nodes.Text(function(" ".join(text.split())))], []
        except (ResultError, KeyError) as error:
            raise ExtensionError(f"{env.docname}, line {lineno}: {error}") from error

    return role


def setup(app):
    """Add the roles."""
    app.add_role("value", _role(evaluate))
    app.add_role("claim", _role(check))
    return {"parallel_read_safe": True}
