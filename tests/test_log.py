"""Messages reach whoever listens, once."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys

import pytest

from sccountsdiff.log import set_up_logging


@pytest.fixture
def logger():
    return logging.getLogger("sccountsdiff")


@contextlib.contextmanager
def only(*handlers):
    """For a while, these alone have been set up to listen."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, list(handlers)
    try:
        yield
    finally:
        root.handlers = before


def test_setting_up_again_changes_nothing(logger):
    handlers, level = list(logger.handlers), logger.level
    logger.setLevel(logging.ERROR)
    try:
        set_up_logging()
        assert logger.handlers == handlers and logger.level == logging.ERROR, "what the user chose stays"
    finally:
        logger.setLevel(level)


def test_goes_to_the_standard_error_of_now(logger, monkeypatch):
    for _ in range(2):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        with only():
            logger.info("imputing zeros")
            logger.debug("a detail")
        assert stream.getvalue() == "imputing zeros\n"


def test_is_left_to_others_who_listen(logger, monkeypatch):
    mine, theirs = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", mine)
    with only(logging.StreamHandler(theirs)):
        logger.warning("imputing zeros")
    assert mine.getvalue() == "" and theirs.getvalue() == "imputing zeros\n"


@pytest.mark.parametrize("set_up", ["", "logging.basicConfig(level=logging.INFO)"])
def test_messages_are_seen_once_whether_or_not_logging_was_set_up(set_up):
    code = f"import logging\nimport sccountsdiff\n{set_up}\nlogging.getLogger('sccountsdiff').info('imputing zeros')"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert answer.count("imputing zeros") == 1
