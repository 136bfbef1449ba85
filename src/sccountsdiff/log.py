"""What the package has to say reaches users who have not set up logging."""

from __future__ import annotations

import logging
import sys


class _Fallback(logging.StreamHandler):
    """Writes to standard error as long as nobody else listens: a program with handlers of its own hears nothing twice."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr  # the one of now: notebooks and tests exchange it
            super().emit(record)


def set_up_logging() -> None:
    """Let messages of level INFO and above be seen; call ``logging.getLogger("sccountsdiff").setLevel`` for others."""
    logger = logging.getLogger("sccountsdiff")
    if not any(isinstance(handler, _Fallback) for handler in logger.handlers):
        logger.addHandler(_Fallback())
        logger.setLevel(logging.INFO)
