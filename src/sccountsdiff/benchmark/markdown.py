"""Text in Markdown."""

from __future__ import annotations

import re

SPECIAL = re.compile(r"([\\|<>*`\[\]]|(?<!\w)_|_(?!\w))")
"""What means something to Markdown, in a table too; underscores within words do not."""


def escape(text: str) -> str:
    r"""Text that is shown as it is, on one line.

    Examples
    --------
    >>> print(escape("gene_mean | *"))
    gene_mean \| \*
    """
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))
