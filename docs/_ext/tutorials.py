"""Shows the notebooks of ``tutorials/``: they are copied to ``docs/tutorials`` before pages are read.

Links in the notebooks are right in the repository; those to pages are made right for the site.
"""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[1]
NOTEBOOKS = DOCS.parent / "tutorials"


def copy(app=None) -> None:
    """Copy what has changed, and remove what is gone."""
    target = DOCS / "tutorials"
    texts = {path.name: path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb")}
    for path in target.glob("*.ipynb"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        text = text.replace("](../docs/", "](../")
        path = target / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # what has not changed is not built again
            path.write_text(text, encoding="utf-8")


def setup(app):
    """Copy before pages are read."""
    app.connect("builder-inited", copy)
    return {"parallel_read_safe": True}
