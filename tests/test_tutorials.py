"""The tutorials: committed as executed, complete, small and offline, with something to do at the end; the first of them runs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))
MAX_BYTES = 600_000
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/])/(home|Users|root|tmp|var|work|mnt|opt|usr)/|\b[A-Z]:\\\\")
SHOWS = re.compile(r"^(?:print\(|sc\.pl\.|sccountsdiff\.pl\.|pd\.DataFrame\(|fig\b)", re.MULTILINE)
"""Lines at the left margin that print, draw or end in a table."""
FROM_AFAR = re.compile(r"https?://|\bsc\.(datasets|read)|\bdownload")
TIMES = re.compile(r"Wall time|CPU times|\d ?(s|it)/(s|it|epoch)|\b\d+:\d\d<")
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cell):
    """What a reader reads of a cell: its source and its outputs, but for pictures."""
    yield cell.source
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            yield output.text
        yield from (str(text) for kind, text in output.get("data", {}).items() if kind.startswith("text/"))


def test_all_tutorials_are_on_the_page_and_the_other_way_round():
    page = (ROOT / "docs" / "tutorials" / "index.md").read_text(encoding="utf-8")
    names = re.search(r"```\{toctree\}.*?\n\n(.*?)```", page, flags=re.DOTALL).group(1).split()
    assert sorted(names) == [path.stem for path in NOTEBOOKS]
    assert sorted(re.findall(r"^:link: (\w+)$", page, flags=re.MULTILINE)) == sorted(names)


@notebooks
def test_was_executed_from_top_to_bottom_without_error(path):
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert not [cell.source for cell in cells if SHOWS.search(cell.source) and not cell.outputs]
    assert [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]


@notebooks
def test_outputs_are_clean_and_small(path):
    notebook = read(path)
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]  # warnings, progress bars
    assert not [kind for output in outputs for kind in output.get("data", {}) if "widget" in kind]
    assert not [cell for cell in code_cells(notebook) if "execution" in cell.metadata]  # times of execution
    assert not [text for cell in code_cells(notebook) for text in texts(cell) if TIMES.search(text)]
    assert path.stat().st_size <= MAX_BYTES


@notebooks
def test_names_no_path_of_the_machine_it_ran_on(path):
    assert not [text for cell in read(path).cells for text in texts(cell) if ABSOLUTE_PATH.search(text)]


@notebooks
def test_needs_no_network(path):
    assert not [cell.source for cell in code_cells(read(path)) if FROM_AFAR.search(cell.source)]


@notebooks
def test_ends_with_something_to_do(path):
    last = read(path).cells[-1]
    assert last.cell_type == "markdown"
    _, _, turn = last.source.partition("## Your turn\n")
    assert len(turn.split()) > 20 and (LINK.search(turn) or "~~~" in turn)


@notebooks
def test_links_lead_somewhere(path):
    links = [link for cell in read(path).cells if cell.cell_type == "markdown" for link in LINK.findall(cell.source)]
    assert links
    assert not [link for link in links if not (path.parent / link).exists()]


@pytest.mark.slow
def test_quickstart_runs(tmp_path):
    notebook = read(ROOT / "tutorials" / "quickstart.ipynb")
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = "\n".join(text for cell in code_cells(notebook) for text in texts(cell))
    assert "observed counts unchanged: True" in shown
    rmse = {name: float(value) for name, value in re.findall(r"^(.*?) +RMSE ([\d.]+)$", shown, flags=re.MULTILINE)}
    assert rmse["CountsDiff"] < rmse["gene mean x depth"] < rmse["gene mean"]  # as the text says
