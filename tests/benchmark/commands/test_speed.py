"""The command passes its options on."""

from __future__ import annotations

import pandas as pd

from sccountsdiff.benchmark import speed
from sccountsdiff.cli import main


def test_options_are_passed_on(monkeypatch, capsys, tmp_path):
    given = {}

    def run(output, **options):
        given.update(options, output=output)
        return pd.DataFrame({"method": ["scvi"], "task": ["one_draw"], "repeat": [0], "ms_per_cell": [2.0]})

    monkeypatch.setattr(speed, "run_speed", run)
    command = ["benchmark", "speed", "--genes", "50", "--methods", "scvi", "--repeats", "2", "--output", str(tmp_path)]
    assert main([*command, "--dataset", "cells.h5ad"]) == 0
    assert given["dataset"] == "cells.h5ad" and "max_epochs" not in given
    assert (given["n_genes"], given["methods"], given["repeats"], given["output"]) == (50, ["scvi"], 2, str(tmp_path))
    assert "one_draw" in capsys.readouterr().out
