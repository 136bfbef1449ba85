"""Options are read off the sources, and give Python what it takes."""

import argparse

import pytest

from sccountsdiff.diffusion.schedules import SCHEDULES
from sccountsdiff.options import REQUIRED, Argument, add_options, arguments_of, given, registered_names


def parsed(annotation, *texts, name="thing", default=None):
    parser = argparse.ArgumentParser(exit_on_error=False)
    names = add_options(parser, [Argument(name, annotation, default, "What it is, in %.")])
    assert "in %." in " ".join(parser.format_help().split())
    return given(parser.parse_args([f"--{name.replace('_', '-')}", *texts]), names)[name]


@pytest.mark.parametrize(
    ("annotation", "texts", "expected"),
    [
        ("int", ["3"], 3),
        ("float | None", ["1e-3"], 1e-3),
        ("float | Tensor | Attrition", ["0.5"], 0.5),
        ("str | type[Head] | Head | None", ["nb"], "nb"),
        ("Literal['a', 'b'] | None", ["b"], "b"),
        ("float | Literal['latent']", ["latent"], "latent"),
        ("float | Literal['latent']", ["1e4"], 1e4),
        ("bool", [], True),
        ("Sequence[str] | None", ["a", "b"], ["a", "b"]),
        ("Sequence[float] | float | None", ["0.1", "0.9"], [0.1, 0.9]),
        ("int | list[int] | str", ["auto"], "auto"),
        ("int | list[int] | str", ["2"], 2),
        ("dict | None", ["lr=1e-3", "name=x"], {"lr": 1e-3, "name": "x"}),
        ("Mapping[str, object] | pd.DataFrame | None", ["age=30"], {"age": 30}),
        ("str | Path | None", ["out.h5ad"], "out.h5ad"),
    ],
)
def test_texts_become_what_the_type_says(annotation, texts, expected):
    assert parsed(annotation, *texts) == expected


def test_what_is_neither_a_number_nor_one_of_the_words_is_told_so():
    with pytest.raises(argparse.ArgumentError, match="must be a number or latent, not 'abc'"):
        parsed("float | Literal['latent']", "abc")


@pytest.mark.parametrize(
    "annotation", ["", "AnnData | MuData", "Sequence[Callback]", "OnMove | None", "Indices | None"]
)
def test_what_is_no_text_gets_no_option(annotation):
    assert add_options(argparse.ArgumentParser(), [Argument("thing", annotation, None, "")]) == []


def test_a_file_has_a_name_in_each_line(tmp_path):
    (tmp_path / "names.txt").write_text("CD4\n  PD-1 (CD279) \n\n")
    assert parsed("Sequence[str] | None", str(tmp_path / "names.txt"), name="genes") == ["CD4", "PD-1 (CD279)"]


def test_what_is_not_given_is_left_to_python():
    parser = argparse.ArgumentParser()
    names = add_options(parser, [Argument("depth", "float", 2.0, "Depth.")])
    assert given(parser.parse_args([]), names) == {}
    assert "Depth. (default: 2.0)" in parser.format_help()


def test_what_has_no_default_is_required():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser, [Argument("n_cells", "int", REQUIRED, "Number.")])
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parser.parse_args([])


def test_genes_by_name_or_by_file(tmp_path):
    (tmp_path / "genes.txt").write_text("b\na\n")
    assert parsed("Sequence[str] | None", str(tmp_path / "genes.txt"), name="genes") == ["b", "a"]
    assert parsed("Sequence[str] | None", "b", "a", name="gene_list") == ["b", "a"]


def test_settings_of_sampling_stand_where_they_stand_in_python():
    names = [argument.name for argument in arguments_of("sccountsdiff.model", "generate")]
    assert names[:3] == ["n_cells", "covariates", "n_steps"] and "known" not in names
    defaults = {argument.name: argument.default for argument in arguments_of("sccountsdiff.model", "generate")}
    assert defaults["n_steps"] == 50 and defaults["n_cells"] is REQUIRED


def test_registered_names():
    own = [
        name for name in SCHEDULES if SCHEDULES[name].__module__.startswith("sccountsdiff.")
    ]  # other tests add theirs
    assert registered_names("sccountsdiff.diffusion.schedules", "register_schedule") == own
