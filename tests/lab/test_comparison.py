"""Results are grouped by what they were tested on and by model, and named by what tells models apart."""

from pathlib import Path

import pytest
from tests.lab.made import result, write_with_ranks

from marsrec.data.splits import SplitSettings
from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.significance import paired
from marsrec.lab.comparison import contests, difference, per_user
from marsrec.lab.pages import curves, groups, inspection, models
from marsrec.lab.report import report


def test_a_model_is_what_differs_in_the_seed_alone() -> None:
    (contest,) = contests([result("sasrec", hits, seed=seed) for seed, hits in ((1, 0.09), (0, 0.08))])
    assert {name: [one.training.seed for one in of] for name, of in contest.models.items()} == {"sasrec": [0, 1]}


def test_models_of_the_same_name_are_called_by_the_settings_in_which_they_differ() -> None:
    found = [result("mars-t", 0.1 - heads / 400, options={"readout.heads": heads}) for heads in (2, 4)]
    found += [result("sasrec", 0.08), result("sasrec", 0.05, epochs=3), result("gru4rec", 0.01)]
    (contest,) = contests(found)
    assert list(contest.models) == [
        "mars-t, readout.heads=2",
        "mars-t, readout.heads=4",
        "sasrec, epochs=200",
        "sasrec, epochs=3",
        "gru4rec",
    ]  # the best by validation first


def test_the_reference_is_chosen_by_validation_unless_it_is_named() -> None:
    strong = result("sasrec", 0.05).model_copy(update={"valid": {"NDCG@10": 0.5}})  # not by the test
    found = [strong, result("mars-t", 0.09)]
    assert contests(found)[0].reference == "sasrec"
    assert contests(found, "mars-t")[0].reference == "mars-t"
    with pytest.raises(SettingsError, match="no model 'core' among the results; there are mars-t, sasrec"):
        contests(found, "core")


def test_other_events_of_the_same_name_are_another_contest() -> None:
    found = [
        result("sasrec"),
        result("sasrec").model_copy(update={"fingerprint": "yyyyyyyyy"}),
        result("core", data="ml-1m"),
    ]
    assert [contest.data for contest in contests(found)] == ["beauty (x)", "beauty (yyyyyyyy)", "ml-1m"]


def test_the_pages_show_best_and_differences_and_groups(tmp_path: Path) -> None:
    ranks = {"sasrec": [1.0] * 200 + [99.0] * 200, "gru4rec": [1.0] * 300 + [99.0] * 100}
    found = [result("sasrec", 0.50), result("gru4rec", 0.75)]
    for one in found:
        write_with_ranks(tmp_path, one, ranks[one.model], [5] * 200 + [20] * 200)
    (contest,) = compared = contests(found, "sasrec")
    table = models.table(contest)
    assert [row[:2] for row in table.rows] == [["gru4rec", "*75.00*"], ["sasrec", "50.00"]]
    (row,) = models.differences(contest, tmp_path).rows
    assert row[0] == "gru4rec"
    assert row[1].startswith("**+25.00 [+2")
    assert row[-1] == "1 / 1"
    by_length = next(part for part in groups.section(compared, tmp_path).parts if not isinstance(part, str))
    assert by_length.columns == ["model", "1-5 (200)", "16-49 (200)"]
    assert [list(row) for row in by_length.rows] == [["gru4rec", "100.00", "*50.00*"], ["sasrec", "100.00", "0.00"]]
    assert inspection.sections(compared, tmp_path) == []
    elsewhere = contests([*found, result("core", data="ml-1m")], "core")
    assert "was not run on these data" in str(models.section(elsewhere, tmp_path).parts)


def test_intervals_are_over_users_where_they_have_several_targets(tmp_path: Path) -> None:
    split = {"split": SplitSettings(name="global-time")}
    mine, theirs = ([result(model).model_copy(update=split)] for model in ("sasrec", "gru4rec"))
    users = [user for user in range(20) for _ in range(10)]
    ranks = [1.0 if user % 2 else 99.0 for user in users]
    for (one,), of in ((mine, ranks), (theirs, [99.0] * 200)):
        write_with_ranks(tmp_path, one, of, [5] * 200)
    with pytest.raises(DataError, match=r"seed0-\w+\.parquet: does not tell the users.*'global-time'"):
        difference(mine, theirs, tmp_path, "HR@10")
    for (one,), of in ((mine, ranks), (theirs, [99.0] * 200)):
        write_with_ranks(tmp_path, one, of, [5] * 200, users=users)
    found = difference(mine, theirs, tmp_path, "HR@10")
    over_targets = paired(*(per_user(of, tmp_path, "HR@10") for of in (mine, theirs)))
    assert found.mean == over_targets.mean == pytest.approx(0.5)
    assert found.high - found.low > 2 * (over_targets.high - over_targets.low)
    assert found.p > over_targets.p


def test_validation_and_test_are_two_contests() -> None:
    trial = result("gru4rec").model_copy(update={"test": {}, "valid": result("sasrec", 0.5).valid})
    compared = contests([result("sasrec"), trial])
    assert [(contest.data, list(contest.models)) for contest in compared] == [
        ("beauty", ["sasrec"]),
        ("beauty, validation", ["gru4rec"]),
    ]
    assert models.table(compared[1]).rows[0][1] == "50.00"


def test_curves_are_of_the_first_seed_and_say_what_is_missing() -> None:
    epochs = [{"train/loss": 3.0, "valid/NDCG@10": reached} for reached in (0.01, 0.03)]
    found = [result("sasrec", seed=seed).model_copy(update={"curve": epochs if seed == 0 else []}) for seed in (1, 0)]
    *_, picture = curves.section(contests(found)).parts
    (line,) = picture.draw().axes[0].lines
    assert list(line.get_xdata()) == [1, 2]
    assert list(line.get_ydata()) == pytest.approx([1, 3])
    assert curves.section(contests([result("sasrec")])).parts[-1] == "No curve was noted."


def test_a_report_has_all_pages(tmp_path: Path) -> None:
    one = result("sasrec")
    write_with_ranks(tmp_path, one, [1.0, 99.0], [5, 5])
    written = report([one], tmp_path, tmp_path / "out")
    pages = [path.stem for path in written if path.suffix == ".md"]
    assert pages == ["models", "groups", "curves", "everything", "README"]
    assert "the paper" not in "".join(path.read_text() for path in written if path.suffix in (".md", ".html"))
