from typing import Any

import pytest

from marsrec.errors import SettingsError
from marsrec.models import RECIPES, backbone, model_settings, rule, title


@pytest.mark.parametrize(
    ("name", "items", "length", "heads", "parameters"),
    [
        ("gru4rec", 12_101, 50, None, 856_512),
        ("narm", 12_101, 50, None, 897_536),
        ("bert4rec", 12_101, 50, None, 894_342),
        ("sasrec", 12_101, 50, None, 877_824),
        ("tisasrec", 12_101, 50, None, 913_920),
        ("fearec", 12_101, 50, None, 877_824),
        ("core", 12_101, 50, None, 877_889),
        ("echomamba4rec", 12_101, 50, None, 868_544),
        ("sigma", 12_101, 50, None, 904_515),
        ("mars-t", 12_101, 50, 4, 895_996),
        ("mamba4rec", 12_101, 50, None, 846_784),
        ("mars-m", 12_101, 50, 4, 937_084),
        ("hawkes-t", 12_101, 50, 4, 895_180),
        ("hawkes-m", 12_101, 50, 4, 936_268),
        ("gru4rec", 3_416, 200, None, 300_672),
        ("bert4rec", 3_416, 200, None, 339_417),
        ("fearec", 3_416, 200, None, 331_584),
        ("sigma", 3_416, 200, None, 348_675),
        ("sasrec", 3_416, 200, None, 331_584),
        ("mamba4rec", 3_416, 200, None, 290_944),
        ("mars-m", 3_416, 200, 8, 381_512),
        ("mars-t", 3_416, 200, 8, 350_024),
    ],
)
def test_parameter_counts_are_the_papers_where_it_gives_them(
    name: str, items: int, length: int, heads: int | None, parameters: int
) -> None:
    options = {"length": length} | ({"readout.heads": heads} if heads else {})
    assert model_settings(name, options=options).build(items).parameter_count() == parameters


def test_the_operator_itself_has_the_size_in_the_paper() -> None:
    for heads, parameters in ((4, 18_172), (8, 18_440)):
        readout = model_settings("mars-t", options={"readout.heads": heads}).readout.build(64, 64, 3600.0)
        assert sum(p.numel() for p in readout.parameters()) == parameters


def test_density_chooses_length_dropout_heads_and_backbone() -> None:
    sparse, dense = model_settings("mars", 8.9), model_settings("mars-t", 165.5)
    assert (sparse.length, sparse.encoder.dropout, sparse.readout.heads, sparse.readout.dropout) == (50, 0.5, 4, 0.2)
    assert (dense.length, dense.encoder.dropout, dense.readout.heads, dense.readout.dropout) == (200, 0.2, 8, 0.0)
    assert backbone(49.9) == "mars-t"
    assert backbone(50.0) == "mars-m"
    assert model_settings("mars", 50.0) == model_settings("mars-m", 50.0)
    assert "165.5 events, 163.5 of them" in rule(165.5, 163.5, dense)
    assert "mars-t with 8 heads. --model mars-m" in rule(165.5, 163.5, dense)
    assert "mars-m with 8 heads. --model mars-t" in rule(165.5, 163.5, model_settings("mars", 163.5))
    backbone_only = rule(165.5, 163.5, model_settings("mars", 163.5, readout="last"))
    assert backbone_only.endswith("50 or more: mamba4rec, 2 layers. --model mars-t takes another.")


def test_parts_compose_freely() -> None:
    assert model_settings("mars-t", readout="last") == model_settings("sasrec")
    assert model_settings("sasrec", readout="mars") == model_settings("mars-t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "bert5rec"}, "unknown model 'bert5rec'; known are mars, gru4rec, narm, bert4rec"),
        ({"model": "sasrec", "encoder": "rnn"}, "unknown encoder 'rnn'; known are .*, transformer"),
        (
            {"model": "sasrec", "options": {"readout.heads": 4}},
            "readout.heads: readout 'last' has no such setting. Readout 'hawkes' or 'mars' has.",
        ),
        ({"model": "mars-t", "options": {"readout.heads": 0}}, "readout.heads: Input should be greater"),
        ({"model": "mars-t", "options": {"readout.hedas": 2}}, "'mars' has no such setting. It has heads, time_scale"),
        ({"model": "mars-t", "options": {"heads": 2}}, "a model has no such setting. Did you mean readout.heads?"),
        ({"model": "mars-t", "options": {"decoder.heads": 1}}, "parts of a model are encoder, readout, scorer"),
        ({"model": "mars-t", "options": {"lenght": 1}}, "lenght: a model has no such setting. It has encoder"),
    ],
)
def test_bad_settings_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        model_settings(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "bert4rec", "readout": "mars"}, "no readout but 'last'; found 'mars'"),
        ({"model": "bert4rec", "options": {"objective": {"name": "next item"}}}, "belong together"),
        ({"model": "sasrec", "published": True}, "sasrec: has no other variant"),
        ({"model": "tisasrec", "encoder": "gru", "published": True}, "published means the encoder of tisasrec"),
    ],
)
def test_parts_that_do_not_fit_are_refused_before_training(arguments: dict, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        model_settings(**arguments)


def test_swapped_encoders_bring_what_they_need() -> None:
    assert model_settings("sasrec", encoder="bert").objective.name == "masked items"
    assert model_settings("bert4rec", encoder="transformer").objective.name == "next item"
    assert model_settings("narm", readout="last").encoder.project
    assert model_settings("sasrec", encoder="gru").encoder.dropout == model_settings("gru4rec").encoder.dropout == 0.3


def test_titles_tell_models_apart() -> None:
    names = [title(model_settings(name)) for name in RECIPES]
    assert names == list(RECIPES)
    for name, recipe in RECIPES.items():
        if recipe.published:
            assert title(model_settings(name, published=True)) == f"{name}, published"
    both = model_settings("sigma", published=True, options={"encoder.layers": 2})
    assert title(both) == "sigma, 2 layers, published"
    assert title(model_settings("sasrec", encoder="frequency")) == "frequency + last"
    contrast = {"objective": {"name": "next item + contrast"}}
    other = model_settings("mamba4rec", published=True, options=contrast)
    assert title(other) == "mamba + last + next item + contrast"
    assert title(model_settings("fearec", encoder="transformer")) == "transformer + last + next item + contrast"
    assert title(model_settings("core", readout="mars")) == "transformer + mars + cosine"


def test_attention_heads_must_divide_the_width() -> None:
    with pytest.raises(SettingsError, match=r"multiple of encoder\.attention_heads"):
        model_settings("sasrec", options={"dim": 9}).build(5)


def test_every_recipe_has_its_parameter_count_above() -> None:
    (mark,) = (
        m for m in test_parameter_counts_are_the_papers_where_it_gives_them.pytestmark if m.name == "parametrize"
    )
    assert {case[0] for case in mark.args[1]} == set(RECIPES)


def test_options_do_not_stay_behind() -> None:
    mine: dict[str, Any] = {"objective": {"name": "next item + contrast"}, "objective.weight": 0.3}
    with pytest.raises(SettingsError, match="nonsense"):
        model_settings("fearec", published=True, options={"objective.nonsense": 1})
    model_settings("fearec", options=mine)
    assert mine["objective"] == {"name": "next item + contrast"}
    assert model_settings("fearec", published=True) == model_settings("fearec", published=True, options={})


def test_the_rule_speaks_also_where_an_option_replaces_the_encoder() -> None:
    settings = model_settings("mars", 8.9, options={"encoder": {"name": "gru"}})
    assert "gru + mars. --model mars-" in rule(10.9, 8.9, settings).replace(" with 4 heads", "")
