"""Figures go to nowhere and are closed after each test."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def figures(monkeypatch):
    mpl.use("agg")
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(True))
    yield shown
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]
