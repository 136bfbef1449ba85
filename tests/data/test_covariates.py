"""Covariates are refused with a reason, or stand for numbers that lead back to them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sccountsdiff.data.covariates import (
    check_covariates,
    check_new_categories,
    continuous_values,
    encode,
    location_and_scale,
    seen_covariates,
)


class TestCheckCovariates:
    @pytest.fixture
    def obs(self):
        return pd.DataFrame(
            {
                "cell_type": pd.Categorical(["B", "T", "B"]),
                "donor": ["d1", "d2", "d2"],
                "batch": [0, 1, 1],
                "age": [31.0, 47.0, 52.0],
                "n_umi": pd.array([3, 4, 5], dtype="Int64"),
                "treated": [True, False, True],
            }
        )

    def test_accepts_complete_columns(self, obs):
        check_covariates(obs, ["cell_type", "donor", "batch", "treated"])
        check_covariates(obs, pd.Index(["cell_type"]))
        check_covariates(obs, ["age", "n_umi", "batch", "treated"], continuous=True)
        check_covariates(obs, [])

    @pytest.mark.parametrize("continuous", [False, True])
    @pytest.mark.parametrize(("argument", "said"), [("labels_key", "labels_key"), (None, "covariates of the model")])
    def test_names_absent_keys_what_exists_and_a_close_match(self, obs, continuous, argument, said):
        with pytest.raises(
            KeyError,
            match=f"{said}: 'cel_type', 'zzz' not in adata.obs, which has 'cell_type', 'donor', .*"
            r"'treated'\. Did you mean 'cell_type' for 'cel_type'\?\"$",
        ):
            check_covariates(obs, ["age", "cel_type", "zzz"], continuous=continuous, argument=argument)

    @pytest.mark.parametrize("key", ["cell_type", "donor", "age", "n_umi"])
    def test_refuses_missing_values(self, obs, key):
        obs.loc[[0, 2], key] = None
        for names, place in (
            ({"argument": "batch_key"}, rf"adata\.obs\['{key}'\] \(batch_key\)"),
            ({}, rf"adata\.obs\['{key}'\]"),
            ({"name": "covariates"}, rf"covariates\['{key}'\]"),
        ):
            with pytest.raises(ValueError, match=f"^{place} is missing in 2 of 3 cells"):
                check_covariates(obs, [key], **names)

    def test_may_lack_what_stands_for_nothing(self, obs):
        obs.loc[[0, 2], ["donor", "n_umi"]] = None
        check_covariates(obs, ["donor", "zzz"], may_lack=True)
        check_covariates(obs, ["n_umi", "zzz"], continuous=True, may_lack=True)
        assert encode(obs, {"donor": np.array(["d2"]), "zzz": np.array([1, 2])}, unseen_to_null=True).tolist() == [
            [1, 2],
            [0, 2],
            [1, 2],
        ]
        np.testing.assert_array_equal(
            continuous_values(obs, ["n_umi", "zzz"]), [[np.nan] * 2, [4, np.nan], [np.nan] * 2]
        )
        with pytest.raises(ValueError, match="is not numeric"):
            check_covariates(obs, ["donor"], continuous=True, may_lack=True)
        for key in ("donor", "zzz"):
            with pytest.raises((ValueError, KeyError), match="Or else"):
                check_covariates(obs, [key], advice=" Or else.")

    @pytest.mark.parametrize("key", ["cell_type", "donor", "complex"])
    def test_continuous_must_be_numeric(self, obs, key):
        obs["complex"] = 1j
        message = (
            rf"obs\['{key}'\] \(continuous_covariate_keys\) is not numeric, its dtype .* or pass it in categorical"
        )
        with pytest.raises(ValueError, match=message):
            check_covariates(obs, [key], continuous=True, argument="continuous_covariate_keys")
        with pytest.raises(ValueError, match=rf"obs\['{key}'\] is not numeric, .* with pandas\.to_numeric\.$"):
            check_covariates(obs, [key], continuous=True)

    def test_continuous_must_be_finite(self, obs):
        obs.loc[1, "age"] = -np.inf
        with pytest.raises(ValueError, match=r"obs\['age'\] is infinite in 1 of 3 cells"):
            check_covariates(obs, ["age"], continuous=True)


class TestEncode:
    @pytest.mark.parametrize("make", [list, pd.Categorical, np.array, pd.Series])
    def test_codes_lead_back_to_the_categories(self, make):
        values = ["T", "B", "B", "NK"]
        known = np.array(["NK", "T", "B"])
        codes = encode(pd.DataFrame({"kind": make(values)}), {"kind": known})
        assert known[codes[:, 0]].tolist() == values

    def test_several_covariates_of_several_types(self):
        obs = pd.DataFrame({"batch": [3, 1], "treated": [True, False], "other": ["u", "v"]})
        categories = {"treated": np.array([False, True]), "batch": np.array([1, 2, 3])}
        assert encode(obs, categories).tolist() == [[1, 2], [0, 0]]
        assert encode(obs, {}).shape == (2, 0)

    def test_unseen_ones_are_named_or_get_the_code_after_the_last(self):
        obs, known = pd.DataFrame({"kind": ["b", "z", "a", "q", "z"]}), {"kind": np.array(["a", "b"])}
        with pytest.raises(
            ValueError, match=r"adata\.obs\['kind'\] .*: 'q', 'z'\. It knows 'a', 'b'\..*unseen_to_null"
        ):
            encode(obs, known)
        assert encode(obs, known, unseen_to_null=True).ravel().tolist() == [1, 2, 0, 2, 2]

    @pytest.mark.parametrize(
        ("values", "known", "message"),
        [
            (["0", "2"], [0, 1, 2], "'0', '2'. It knows 0, 1, 2. The types differ: '0' is of type str, .* as int"),
            ([0, 2], ["0", "1", "2"], "0, 2. It knows '0', '1', '2'. The types differ: 0 is of type int, .* as str"),
            ([True], ["True", "False"], "True. It knows 'True', 'False'. The types differ: True is of type bool"),
            ([0.5, 7.5], ["0.5", "1.5"], "0.5, 7.5. It knows '0.5', '1.5'. The types differ: 0.5 is of type float"),
        ],
    )
    @pytest.mark.parametrize("make", [np.array, pd.Categorical])
    def test_types_that_differ_are_told_apart(self, values, known, message, make):
        with pytest.raises(ValueError, match=message) as error:
            encode(pd.DataFrame({"kind": make(values)}), {"kind": np.array(known)})
        assert "unseen_to_null" not in str(error.value)

    def test_not_all_of_many_are_named(self):
        obs, known = pd.DataFrame({"kind": [f"u{i:02d}" for i in range(12)]}), {"kind": np.array(list("abcdefghijklm"))}
        with pytest.raises(
            ValueError, match=r"'u08', 'u09', \.\.\.\. It knows 'a', .*'i', 'j', \.\.\.\. Pass"
        ) as error:
            encode(obs, known)
        assert "u10" not in str(error.value)


def test_new_categories_may_not_be_known_ones_of_another_type():
    known = {"batch": np.array([1, 2]), "donor": np.array(["a"])}
    check_new_categories(pd.DataFrame({"batch": [1, 3, 2], "donor": ["b", None, "a"]}), known)
    check_new_categories(pd.DataFrame({"batch": [7]}), known)
    with pytest.raises(ValueError, match="'1', 'x'. It knows 1, 2. The types differ: '1' is of type str"):
        check_new_categories(pd.DataFrame({"batch": pd.Categorical(["x", "1"])}), known)


class TestSeen:
    def test_combinations_and_their_numbers(self):
        rng = np.random.default_rng(0)
        codes = rng.integers(3, size=(500, 2))
        seen = seen_covariates(codes, np.zeros((500, 0)))
        assert seen["n_cells"].sum() == 500 and len(seen["codes"]) == len(np.unique(codes, axis=0))
        for combination, n in zip(seen["codes"], seen["n_cells"], strict=True):
            assert (codes == combination).all(1).sum() == n

    def test_continuous_ones_stay_with_their_cells_and_are_not_too_many(self, monkeypatch):
        monkeypatch.setattr("sccountsdiff.data.covariates.MAX_SEEN", 100)
        codes = np.arange(1000)[:, None] // 250
        seen = seen_covariates(codes, np.arange(1000.0)[:, None])
        assert seen["n_cells"].sum() == 100
        np.testing.assert_array_equal(seen["values"][:, 0] // 250, seen["codes"][:, 0])
        assert set(seen["codes"][:, 0]) == {0, 1, 2, 3}

    def test_none(self):
        seen = seen_covariates(np.zeros((7, 0), int), np.zeros((7, 0)))
        assert seen["n_cells"].tolist() == [7]


class TestContinuous:
    def test_values_keep_double_precision(self):
        seconds = 1.7e9 + np.arange(5) / 8
        obs = pd.DataFrame({"age": [1, 2, 3, 4, 5], "time": seconds, "n": pd.array([1, 2, 3, 4, 5], dtype="Int64")})
        values = continuous_values(obs, ["time", "n"])
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, np.stack([seconds, np.arange(1, 6)], axis=1))
        assert continuous_values(obs, []).shape == (5, 0)

    @pytest.mark.parametrize(
        "column", [np.arange(100.0), 1.7e9 + np.arange(100) / 8, 1e-6 * np.arange(100), np.arange(100) % 2]
    )
    def test_standardised_values_have_mean_0_and_deviation_1(self, column):
        location, scale = location_and_scale(column[:, None])
        z = (column - location) / scale
        assert abs(z.mean()) < 1e-6 and abs(z.std() - 1) < 1e-6

    @pytest.mark.parametrize("value", [0.0, 0.1, -0.3, 1e9 + 0.1, 1e-5])
    @pytest.mark.parametrize("n", [1, 3, 1000, 99_991])
    def test_a_constant_has_scale_1(self, value, n):
        location, scale = location_and_scale(np.full((n, 1), value))
        np.testing.assert_allclose(location, value, rtol=1e-12)
        assert scale.tolist() == [1.0]

    def test_no_covariates(self):
        location, scale = location_and_scale(np.zeros((4, 0)))
        assert location.shape == scale.shape == (0,)


class TestKinds:
    @pytest.mark.parametrize(
        "values",
        [
            pd.date_range("2020-01-01", periods=4),
            pd.to_timedelta([1, 2, 3, 4], unit="D"),
            pd.period_range("2020-01", periods=4, freq="M"),
            pd.cut([1, 2, 3, 4], 2),
            [("a", 1), ("b", 2)] * 2,
            [1j, 2j] * 2,
        ],
        ids=lambda values: type(values).__name__,
    )
    def test_what_is_neither_text_nor_number_is_no_category(self, values):
        table = pd.DataFrame({"x": pd.Series(values)})
        with pytest.raises(
            ValueError, match=r"adata\.obs\['x'\] \(batch_key\) holds .* must be text or numbers.*astype\(str\)"
        ):
            check_covariates(table, ["x"], argument="batch_key")
        table["x"] = table["x"].astype(str)
        check_covariates(table, ["x"], argument="batch_key")

    def test_others_are(self):
        for values in (
            ["a", "b"],
            [1, 2],
            [1.5, 2.5],
            [True, False],
            pd.Categorical(["a", "b"]),
            pd.array([1, 2], dtype="Int64"),
        ):
            check_covariates(pd.DataFrame({"x": values}), ["x"], argument="batch_key")

    @pytest.mark.parametrize("continuous", [True, False])
    def test_a_name_of_two_columns_is_refused(self, continuous):
        table = pd.DataFrame([[1, 2], [3, 4]], columns=["x", "x"])
        with pytest.raises(ValueError, match=r"adata\.obs has 2 columns named 'x' \(key\): rename or drop"):
            check_covariates(table, ["x"], continuous=continuous, argument="key")


@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1e-20, 1.0, 1e100, 1e200, 1e307])
def test_scales_do_not_depend_on_the_unit(unit):
    values = np.array([[1.0], [-3.0], [5.0]])
    location, scale = location_and_scale(values * unit)
    expected = location_and_scale(values)
    np.testing.assert_allclose((values * unit - location) / scale, (values - expected[0]) / expected[1], atol=1e-9)
    np.testing.assert_allclose(expected[1], values.std(0))


def test_constants_have_no_scale():
    assert location_and_scale(np.full((7, 3), [0.0, 0.1, 1e250]))[1].tolist() == [1, 1, 1]
