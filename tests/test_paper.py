"""What the paper sets on its data sets."""

import pytest

from marsrec import Recommender
from marsrec.data.catalog import CATALOG
from marsrec.models import model_settings
from marsrec.paper import PAPER, paper_options


def test_every_public_data_set_has_the_papers_settings() -> None:
    assert set(PAPER) == set(CATALOG)


def test_other_data_have_none() -> None:
    assert paper_options(None, "mars-t") == paper_options("hawkes", "mars-t") == {}


@pytest.mark.parametrize("name", ["mamba4rec", "echomamba4rec"])
def test_mamba_takes_its_authors_dropout_on_sparse_data(name: str) -> None:
    assert model_settings(name, 8.9).encoder.dropout == 0.4
    assert paper_options("beauty", name)["encoder.dropout"] == 0.4
    assert paper_options("beauty", "mars-m")["encoder.dropout"] == 0.5
    assert paper_options("beauty", "mars-m")["readout.dropout"] == 0.0  # the paper mentions none on the user vector
    assert paper_options("beauty", name, encoder="transformer")["encoder.dropout"] == 0.5
    for data in ("ml-1m", "games-2018"):
        assert paper_options(data, name)["encoder.dropout"] == 0.2


def test_own_logs_get_repeats_from_mars_and_the_papers_data_do_not() -> None:
    own, public = Recommender("mars"), Recommender("mars-t")
    assert own.planned_settings(8.9).scorer.repeats
    assert own.planned_settings(165.5).scorer.repeats
    assert not own.planned_settings(8.9, "beauty").scorer.repeats
    assert not public.planned_settings(8.9).scorer.repeats
    off = Recommender("mars", options={"scorer.repeats": False})
    assert not off.planned_settings(8.9).scorer.repeats
