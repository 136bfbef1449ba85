"""Each setting of sampling is written once, and checked against the model before any work."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re

import numpy as np
import pytest
import torch

from sccountsdiff import CountsDiffImputer
from sccountsdiff.diffusion import Blackout, Cap, Rescale
from sccountsdiff.model.settings import SamplingSettings, read_settings, setting_fields, takes_sampling_settings
from sccountsdiff.module import CountsDiffModule

FIELDS = [field.name for field in dataclasses.fields(SamplingSettings)]
METHODS = ("impute", "posterior_predictive_sample", "generate")


def make_module(**kwargs):
    return CountsDiffModule(np.ones(5), backbone_kwargs={"n_hidden": 4, "n_layers": 1}, **kwargs)


def taken_by(method):
    return [name for name in FIELDS if not (method == "generate" and name == "known")]


class TestSignatures:
    @pytest.mark.parametrize("method", METHODS)
    def test_show_every_setting(self, method):
        parameters = inspect.signature(getattr(CountsDiffImputer, method)).parameters
        assert [name for name in parameters if name in FIELDS] == taken_by(method)
        assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        for field in dataclasses.fields(SamplingSettings):
            if field.name in taken_by(method):
                expected = 50 if (method, field.name) == ("generate", "n_steps") else field.default
                assert parameters[field.name].default == expected, field.name
                assert parameters[field.name].kind is inspect.Parameter.KEYWORD_ONLY

    @pytest.mark.parametrize("method", METHODS)
    def test_docstrings_describe_every_setting(self, method):
        text = inspect.cleandoc(getattr(CountsDiffImputer, method).__doc__)
        assert "**sampling" not in text
        for field in dataclasses.fields(SamplingSettings):
            described = f"\n{field.name}\n    {field.metadata['doc'].splitlines()[0]}\n"
            assert (described in text) == (field.name in taken_by(method)), field.name
        parameters, rest = text.split("Parameters\n----------\n")[1].split("\nReturns\n-------\n")
        assert "n_steps\n" in parameters and rest.strip(), "in their place"

    def test_of_a_method_of_one_s_own(self):
        @takes_sampling_settings("n", leave_out=("known", "guidance"), n_steps=7)
        def draw(self, n, *, silent=False, **sampling):
            """Draw.

            Parameters
            ----------
            n
                Number.
            **sampling
                Settings.

            Returns
            -------
            Draws.
            """

        names = list(inspect.signature(draw).parameters)
        rest = [name for name in FIELDS if name not in ("known", "guidance")]
        assert names == ["self", "n", *rest, "silent"]
        assert inspect.signature(draw).parameters["n_steps"].default == 7
        described = re.findall(r"^(\w+)$", inspect.cleandoc(draw.__doc__), flags=re.MULTILINE)
        assert described == ["Parameters", "n", *rest, "Returns"]

    def test_fields_with_other_defaults(self):
        fields = {field.name: field.default for field in setting_fields(("known",), final="mean")}
        assert list(fields) == [name for name in FIELDS if name != "known"]
        assert fields["final"] == "mean" and fields["n_steps"] == SamplingSettings().n_steps


class TestUnknownKeywords:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize(
        ("given", "meant"), [("nsteps", "n_steps"), ("guidence", "guidance"), ("n_resample", "n_resamples")]
    )
    def test_are_named_with_what_may_be_meant(self, trained, method, given, meant):
        arguments = (2,) if method == "generate" else ()
        message = rf"^{method}\(\) takes no argument '{given}'; did you mean '{meant}'\? Arguments are .*attrition"
        with pytest.raises(TypeError, match=message):
            getattr(trained, method)(*arguments, **{given: 3})

    def test_are_read_from_the_signature(self):
        def draw(*, n_steps=3, final="mean"):
            pass

        assert read_settings(draw, {}) == SamplingSettings(n_steps=3, final="mean")
        assert read_settings(draw, {"n_steps": 4}) == SamplingSettings(n_steps=4, final="mean")
        with pytest.raises(TypeError, match=r"draw\(\) takes no argument 'known'\. Arguments are n_steps, final\."):
            read_settings(draw, {"known": "clean"})


class TestResolve:
    @pytest.mark.parametrize(("observed_training", "known"), [(True, "clean"), (False, "noised")])
    def test_observed_counts_are_shown_as_in_training(self, observed_training, known):
        module = make_module(observed_training=observed_training)
        assert SamplingSettings().known is None
        assert SamplingSettings().resolve(module).known == known
        assert SamplingSettings(known="noised").resolve(module).known == "noised"

    def test_a_model_that_never_saw_observed_counts_is_not_shown_any(self):
        with pytest.raises(ValueError, match="`observed_training=False` .*pass `known='noised'`"):
            SamplingSettings(known="clean").resolve(make_module(observed_training=False))

    @pytest.mark.parametrize("observed_training", [True, False])
    def test_where_cells_are_made_from_nothing_there_is_nothing_to_show(self, observed_training):
        module = make_module(observed_training=observed_training)
        assert SamplingSettings(n_steps=1, final="mean").resolve(module, generating=True).known is None

    @pytest.mark.parametrize(
        ("head", "rounding"), [("nb_mixture", "mixture"), ("nb", "nb"), ("poisson", "random"), ("softplus", "random")]
    )
    def test_rounding_is_that_of_the_head(self, head, rounding):
        module = make_module(head=head)
        assert SamplingSettings().resolve(module).rounding == rounding
        assert SamplingSettings(rounding="nearest").resolve(module).rounding == "nearest"

    def test_numbers_and_attrition_become_what_is_worked_with(self):
        given = SamplingSettings(n_steps=np.int64(3), attrition=np.float32(0.25))
        resolved = given.resolve(make_module())
        assert type(resolved.n_steps) is int and isinstance(resolved.attrition, Rescale)
        assert given.attrition == np.float32(0.25), "the settings themselves do not change"
        assert resolved.resolve(make_module()) == resolved, "resolving again changes nothing"
        mine = Cap(0.1)
        assert SamplingSettings(attrition=mine).resolve(make_module()).attrition is mine

    def test_the_mean_of_logarithms_is_one_pass(self):
        resolved = SamplingSettings(final="log_mean", n_resamples=3, jump_length=2).resolve(make_module())
        assert (resolved.n_steps, resolved.n_resamples, resolved.jump_length) == (1, 1, 1)

    def test_settings_do_not_change(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            SamplingSettings().n_steps = 3

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"n_steps": 1, "final": "mean"}, True),
            ({"n_steps": 1}, False),
            ({"n_steps": 2, "final": "mean"}, False),
            ({"n_steps": 1, "final": "mean", "n_resamples": 2}, False),
            ({"final": "log_mean"}, True),
        ],
    )
    def test_what_is_the_same_each_time(self, settings, expected):
        assert SamplingSettings(**settings).is_deterministic == expected


class TestDescribe:
    @pytest.mark.parametrize("attrition", [0.1, Cap(0.1), torch.full((3,), 0.1)], ids=["number", "object", "tensor"])
    def test_gives_plain_values_for_every_setting(self, attrition):
        described = SamplingSettings(attrition=attrition).resolve(make_module()).describe()
        assert list(described) == FIELDS
        assert all(isinstance(value, int | float | str) for value in described.values())
        assert described["known"] == "clean" and described["n_steps"] == 3

    def test_leaves_out_what_does_not_apply(self):
        described = SamplingSettings().resolve(make_module(), generating=True).describe()
        assert list(described) == [name for name in FIELDS if name != "known"]


class TestSteps:
    """Few steps where the first of them are short, many even ones elsewhere, and whatever is asked for."""

    @pytest.mark.parametrize(
        "given, model, expected",
        [
            ({}, {}, (3, "geometric")),
            ({"known": "noised"}, {}, (15, "even")),
            ({}, {"observed_training": False}, (15, "even")),
            ({"spacing": "even"}, {}, (15, "even")),
            ({"n_steps": 7}, {}, (7, "geometric")),
            ({"n_steps": 7, "spacing": "geometric"}, {"observed_training": False}, (7, "geometric")),
            ({}, {"schedule": Blackout(n_grid=9)}, (8, "even")),
            ({}, {"schedule": Blackout()}, (15, "even")),
        ],
    )
    def test_are_chosen_by_what_is_shown(self, given, model, expected):
        resolved = SamplingSettings(**given).resolve(make_module(**model))
        assert (resolved.n_steps, resolved.spacing) == expected

    def test_of_cells_from_nothing_are_even(self):
        assert SamplingSettings(n_steps=50).resolve(make_module(), generating=True).spacing == "even"

    def test_points_in_time_cannot_be_spaced_anew(self):
        with pytest.raises(ValueError, match="needs a schedule in continuous time"):
            SamplingSettings(spacing="geometric").resolve(make_module(schedule=Blackout()))

    def test_other_spacings_are_refused(self):
        with pytest.raises(ValueError, match="spacing.*'odd'"):
            SamplingSettings(spacing="odd").resolve(make_module())


class TestRefusals:
    def test_a_word_is_no_strength(self, impute, query, spy):
        with pytest.raises(TypeError, match="`guidance` must be a number, not '2'"):
            impute(query, guidance="2")
        assert not spy

    def test_draws_in_one_step_with_noised_counts_are_warned_of(self, impute, query, sites, caplog):
        with caplog.at_level(logging.WARNING, "sccountsdiff"):
            draws = impute(query, sites=sites, known="noised", n_steps=1, return_mean=False)
        assert "draws do not depend on the cell" in caplog.text
        query.X = query.X * 3
        np.testing.assert_array_equal(
            impute(query, sites=sites, known="noised", n_steps=1, return_mean=False)[:, sites], draws[:, sites]
        )

    def test_negative_binomial_draws_need_its_head(self, simulate, train):
        model = train(simulate(20).adata, 1, model_kwargs={"head": "poisson"})
        with pytest.raises(ValueError, match=r"`rounding='nb'` needs .*`head='nb'`; this one has the head Poisson"):
            model.impute(rounding="nb", silent=True)
        with pytest.raises(ValueError, match="`guidance=2` has nothing to act on: the model has no covariates"):
            model.impute(guidance=2, silent=True)

    def test_a_grid_of_times_bounds_the_steps(self, simulate, train):
        schedule = Blackout(n_grid=5)
        model = train(simulate(20).adata, 1, model_kwargs={"schedule": schedule})
        model.impute(n_steps=4, n_samples=1, n_folds=1, silent=True)
        with pytest.raises(ValueError, match="`n_steps` can be at most 4 on the 5 time points"):
            model.impute(n_steps=5, silent=True)

    @pytest.mark.parametrize("guidance", [0, 0.5, 2])
    def test_guidance(self, strict, guidance):
        message = f"`guidance={guidance}` needs predictions without covariates, .*`p_uncond=0`. Use `guidance=1`"
        for method in (
            strict.impute,
            strict.denoise,
            strict.get_normalized_expression,
            strict.posterior_predictive_sample,
            lambda guidance: strict.generate(2, {"cell_type": "B", "age": 0.0}, guidance=guidance),
        ):
            with pytest.raises(ValueError, match=message):
                method(guidance=guidance)

    def test_models_without_covariates_have_nothing_to_drop(self, simulate, train):
        model = train(simulate(30).adata, 1, model_kwargs={"p_uncond": 0.0})
        assert model.generate(2, n_steps=1, silent=True).shape == (2, 20)
        kwargs = {"n_samples": 1, "n_steps": 1, "seed": 0, "silent": True}
        results = [model.impute(guidance=guidance, **kwargs).toarray() for guidance in (0, 1)]
        np.testing.assert_array_equal(*results)

    def test_guidance_needs_covariates(self, plain):
        with pytest.raises(ValueError, match="`guidance=3` has nothing to act on: the model has no covariates"):
            plain.denoise(guidance=3)
        with pytest.raises(ValueError, match="`guidance=3` has nothing to act on: the model has no covariates"):
            plain.get_normalized_expression(guidance=3)
