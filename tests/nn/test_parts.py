"""How parts become known: by being defined, in this process or in an installed package."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import pytest
from pydantic import ValidationError
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.models import model_settings, title
from marsrec.nn.encoders.base import Encoder, EncoderSettings
from marsrec.nn.encoders.gru import GruSettings
from marsrec.nn.readouts.base import ReadoutSettings
from marsrec.nn.scorers import ScorerSettings
from marsrec.nn.settings import KINDS, ModelSettings

pytestmark = pytest.mark.usefixtures("parts_of_this_test")


class Same(Encoder):
    causal = True

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        return embedded


def defined(name: str = "same", qualname: str = "SameSettings", **fields: Any) -> type[EncoderSettings]:
    """An encoder as somebody's script or cell defines it."""

    def build(self: EncoderSettings, dim: int, length: int) -> Encoder:
        return Same(dim)

    body = {"__module__": "somebody", "__qualname__": qualname, "name": name, "build": build}
    body["__annotations__"] = {"name": Literal[name], **{field: type(value) for field, value in fields.items()}}
    return type(EncoderSettings)(qualname, (EncoderSettings,), {**body, **fields})


def test_ours_are_found_without_being_listed() -> None:
    assert {"bert", "echo", "frequency", "gru", "mamba", "sigma", "time-interval"} < set(EncoderSettings.known())
    assert {"core", "last", "mars", "narm"} <= set(ReadoutSettings.known())
    assert {"biased", "cosine", "dot"} <= set(ScorerSettings.known())
    assert {"masked items", "next item", "next item + contrast"} <= set(KINDS["objective"].known())


def test_what_is_defined_is_known_by_its_name() -> None:
    kind = defined(width=3)
    assert EncoderSettings.named("same") is kind
    settings = model_settings("sasrec", encoder="same", options={"encoder.width": 5})
    assert (settings.encoder, settings.encoder.width) == (kind(width=5), 5)
    assert title(settings) == "same + last"
    assert settings.build(7).causal


@pytest.mark.parametrize("given", ["gru", {"name": "gru", "hidden": 64}, GruSettings(hidden=64, dropout=0.1)])
def test_a_part_is_given_by_name_by_values_or_as_settings(given: Any) -> None:
    settings = ModelSettings(encoder=given)
    assert isinstance(settings.encoder, GruSettings)
    assert model_settings("sasrec", encoder=given).encoder == settings.encoder
    assert ModelSettings.model_validate_json(settings.model_dump_json()) == settings
    assert ModelSettings.model_validate(settings.model_dump()) == settings


def test_what_is_given_is_not_changed_by_the_density_of_the_data() -> None:
    given = ReadoutSettings.named("mars")(heads=3)
    dense = model_settings("sasrec", 165.5, readout=given).readout
    assert (dense.heads, dense.dropout) == (3, 0.0)
    named = model_settings("sasrec", 165.5, readout="mars").readout
    assert (named.heads, named.dropout) == (8, 0.0)
    assert model_settings("gru4rec", readout="narm", encoder=GruSettings(project=True)).encoder.project


def test_a_scorer_and_an_objective_are_replaced_as_well() -> None:
    settings = model_settings("sasrec", scorer={"name": "cosine", "temperature": 0.1}, objective="next item + contrast")
    assert title(settings) == "transformer + last + cosine + next item + contrast"
    assert settings.scorer.temperature == 0.1
    assert model_settings("core", scorer="dot", readout="last", options={"item_dropout": 0.0}).scorer.name == "dot"


def test_a_cell_can_be_run_again_and_a_name_is_not_taken_twice() -> None:
    first, again = defined(), defined(width=3)
    assert EncoderSettings.named("same") is again
    assert ModelSettings(encoder=first()).encoder == first()  # what was made before goes on to work
    with pytest.raises(SettingsError, match=r"two encoders are named 'same': somebody\.SameSettings and somebody\.Oth"):
        defined(qualname="OtherSettings")
    with pytest.raises(SettingsError, match=r"two encoders are named 'gru': marsrec\.nn\.encoders\.gru\.GruSettings"):
        defined("gru")
    assert EncoderSettings.named("gru") is GruSettings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("rnn", "unknown encoder .rnn.; known are .*, transformer. One of your own is known as soon as"),
        ("mars", "unknown encoder 'mars'"),
        ({"name": "gru", "hidden": 0}, "encoder: hidden: Input should be greater than or equal to 1"),
        ({"hidden": 3}, "encoder: .*the name of a part, its settings, or a mapping of them with a name"),
        (ReadoutSettings.named("last")(), "encoder: .*the name of a part"),
    ],
)
def test_what_is_no_part_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        model_settings("sasrec", encoder=given)


def test_the_place_of_a_bad_value_is_named() -> None:
    with pytest.raises(ValidationError) as error:
        ModelSettings(encoder={"name": "gru", "hidden": 0}, readout={"name": "mars", "hedas": 2})
    assert [problem["loc"] for problem in error.value.errors()] == [("encoder", "hidden"), ("readout", "hedas")]


def python(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a new process that finds packages in a folder."""
    found = os.pathsep.join([str(path), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", dedent(code)], env={**os.environ, "PYTHONPATH": found}, capture_output=True, text=True
    )


def install(path: Path, name: str, module: str, code: str) -> None:
    """A distribution with one module that brings parts."""
    (path / f"{module}.py").write_text(dedent(code))
    information = path / f"{name}-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (information / "top_level.txt").write_text(module)
    (information / "entry_points.txt").write_text(f"[marsrec.parts]\n{module} = {module}\n")


def test_installed_packages_bring_parts_when_they_are_needed(tmp_path: Path) -> None:
    install(
        tmp_path,
        "shop-parts",
        "shop_parts",
        """
        from typing import Literal

        from marsrec.nn.scorers import Dot, ScorerSettings

        class ShopSettings(ScorerSettings):
            name: Literal["shop"] = "shop"

            def build(self, dim, n_items):
                return Dot()
        """,
    )
    install(tmp_path, "broken-parts", "broken_parts", "import a_module_that_is_missing")
    done = python(
        """
        import sys
        from marsrec.models import model_settings

        model_settings("mars-t").build(5)
        assert "shop_parts" not in sys.modules
        settings = model_settings("sasrec", scorer="shop")
        print(settings.scorer.name, settings.scorer.origin())
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "shop {'module': 'shop_parts', 'distribution': 'shop-parts'}\n"
    assert done.stderr.count("the parts that 'broken_parts' of broken-parts 1.2 should bring are unknown: ") == 1
    assert "ModuleNotFoundError: No module named 'a_module_that_is_missing'. Update or remove" in done.stderr
