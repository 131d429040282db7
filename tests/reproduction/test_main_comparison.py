"""The main comparison shows what was run, beside what the paper says, and compares only what can be compared."""

from pathlib import Path

import pytest
from reproduction.comparable import USUAL, alike, find, trained
from reproduction.main_comparison import contest, main_comparison, over_seeds, section, significance
from tests.lab.made import result, write_with_ranks

from marsrec.models import RECIPES


def test_every_recipe_has_a_row_and_what_was_not_run_says_so() -> None:
    table = main_comparison([result("sasrec", 0.08), result("mars-t", 0.088)], "beauty")
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == list(RECIPES)
    assert rows["gru4rec"][1:4] == ["not run"] * 3
    assert rows["sasrec"][1:6] == ["8.00", "4.00", "2.00", "8.04 / 4.10 / 2.90", "-0.5% / -2.4% / -31.0%"]
    assert rows["mars-t"][1] == "*8.80*"


def test_seeds_are_averaged_with_their_deviation() -> None:
    table = main_comparison([result("sasrec", hits, seed=seed) for seed, hits in enumerate((0.08, 0.09))], "beauty")
    row = next(row for row in table.rows if row[0] == "sasrec")
    assert row[1] == "8.50 ± 0.71"  # alone, it is not marked as the best
    assert row[-1] == "0, 1"


def test_other_settings_and_other_trainings_are_not_mixed_in() -> None:
    papers = result("sasrec", 0.08)
    short = result("sasrec", 0.05, epochs=3)
    narrow = result("sasrec", 0.07, options={"dim": 32})
    assert find([papers, narrow], "sasrec") == [papers]
    assert alike([short, short, papers], "beauty") == [papers]
    assert alike([short], "beauty") == [short]  # where nothing was trained as in the paper, what most have in common
    assert "epochs 3" in main_comparison([short], "beauty").caption


def test_other_data_of_the_same_name_are_not_mixed_in() -> None:
    one, other = result("sasrec"), result("mars-t").model_copy(update={"fingerprint": "y"})
    assert len(alike([one, other], "beauty")) == 1


def test_mars_is_compared_with_each_of_the_others_user_by_user(tmp_path: Path) -> None:
    """The best other is another one by hits than by how high they stand."""
    made = {
        "gru4rec": (result("gru4rec", 0.30), [1.0] * 120 + [99.0] * 280),  # all of its hits at the top
        "sasrec": (result("sasrec", 0.50), [9.0] * 200 + [99.0] * 200),
        "mars-t": (result("mars-t", 0.75), [3.0] * 300 + [99.0] * 100),
    }
    for one, ranks in made.values():
        write_with_ranks(tmp_path, one, ranks, [5] * len(ranks))
    top = dict.fromkeys(("HR@10", "NDCG@10", "MRR@10"), 0.30)
    made["gru4rec"] = (made["gru4rec"][0].model_copy(update={"test": top}), [])
    against = contest([one for one, _ in made.values()], tmp_path)
    assert against is not None
    ours, contests = against
    table = significance(contests, ours)
    assert table.columns == ["mars-t against", "HR@10", "NDCG@10", "MRR@10", "NDCG@10 over seeds"]
    gru4rec, sasrec = table.rows
    assert (gru4rec[0], sasrec[0], sasrec[-1]) == ("gru4rec", "sasrec", "one seed")
    assert gru4rec[1].startswith("**+45.00 [+")
    assert sasrec[1].startswith("**+25.00 [+2")
    assert sasrec[1].endswith("p < 0.0001**")
    assert gru4rec[3].startswith("**-5.00 [-")  # 120 at rank 1 are more MRR than 300 at rank 3
    assert "The best others are sasrec by HR@10, gru4rec by NDCG@10, gru4rec by MRR@10" in table.caption


@pytest.mark.parametrize("missing", ["sasrec", "mars-t"])
def test_nothing_is_claimed_of_what_was_not_run(tmp_path: Path, missing: str) -> None:
    one = result("mars-t" if missing == "sasrec" else "sasrec")
    assert contest([one], tmp_path) is None
    parts = section([one], tmp_path).parts
    assert "MARS against the others: not run." in parts
    assert parts[parts.index("## sports") + 1] == "Not run."


def test_recboles_order_of_events_is_compared_with_the_paper_too() -> None:
    dense = {"average": 165.0, "options": {"length": 200}}
    rows = [
        main_comparison([result("sasrec", 0.29, data=data, **dense)], data).rows[3]
        for data in ("ml-1m", "ml-1m-recbole")
    ]
    assert rows[0][:5] == rows[1][:5] == ["sasrec", "29.00", "14.50", "7.25", "29.62 / 16.61 / 12.65"]


def test_other_data_with_a_papers_name_do_not_stand_beside_its_figures() -> None:
    other = result("sasrec").model_copy(update={"statistics": {"average_length": 8.9, "users": 3}})
    assert main_comparison([other], "beauty").rows[3][4] == "none"


def test_one_result_per_seed_the_one_with_most_prefixes() -> None:
    whole, part = result("sigma", 0.06), result("sigma", 0.05, prefix_share=0.02)
    assert find([whole, part], "sigma") == find([part, whole], "sigma") == [whole]
    row = next(row for row in main_comparison([part], "beauty").rows if row[0].startswith("sigma"))
    assert row[0] == "sigma, 2% of the prefixes"


def test_a_recipes_own_batches_are_compared_and_named_others_are_another_training() -> None:
    own, usual = result("fearec", 0.07, targets_per_batch=256), result("fearec", 0.02)
    found = [own, usual, result("sasrec", 0.08), result("sasrec", 0.3, seed=1, targets_per_batch=512)]
    rows = {row[0]: row[1] for row in main_comparison(found, "beauty").rows}
    assert rows["fearec, batches of 256"] == "7.00"
    assert rows["sasrec"] == "*8.00*"
    assert trained(alike(found, "beauty")) == USUAL
    large = [result("sasrec", 0.3, targets_per_batch=512), result("mars-t", 0.2, targets_per_batch=512)]
    assert trained(alike(large, "beauty")) == "targets_per_batch 512"
    assert "sasrec, batches of 512" in [row[0] for row in main_comparison(large, "beauty").rows]


def test_other_seeds_have_an_interval_of_their_own() -> None:
    """Differences of 0.5, 1.0 and 1.5: their mean ± 4.3027 × 0.5 / √3."""
    mine = [result("mars-t", hits, seed=seed) for seed, hits in enumerate((0.09, 0.10, 0.11))]
    theirs = [result("sasrec", 0.08, seed=seed) for seed in range(4)]
    assert over_seeds(mine, theirs) == "+1.00 [-0.24, +2.24], 3 seeds"
    assert over_seeds(mine[:1], theirs) == "one seed"
