"""Experiments do what is missing, once."""

from pathlib import Path

import pytest
from tests.lab.running import folders, invoke, places, states
from tests.synthetic import cyclic_log
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.errors import MarsrecError
from marsrec.lab.results import inspection_of, read_results
from marsrec.lab.runner import recommender_of, run_all, source_of


def test_a_grid_is_done_once(experiment: Path, tmp_path: Path) -> None:
    invoke("lab", "run", experiment, "--only", "mars-t*seed 1", *folders(tmp_path))
    assert states(experiment, tmp_path) == ["missing", "missing", "missing", "done"]
    (first,) = (tmp_path / "results-a").glob("*.json")
    written = first.stat().st_mtime_ns
    invoke("lab", "run", experiment, *folders(tmp_path))
    assert first.stat().st_mtime_ns == written
    found = read_results(tmp_path / "results-a")
    assert sorted((r.model, r.training.seed) for r in found) == [
        ("gru4rec", 0),
        ("gru4rec", 1),
        ("mars-t", 0),
        ("mars-t", 1),
    ]
    experiment.write_text(experiment.read_text().replace("epochs = 2", "epochs = 3"))
    assert states(experiment, tmp_path) == ["missing"] * 4  # another setting is another run


def test_data_of_several_densities(tmp_path: Path) -> None:
    cyclic_log(users=20).write_csv(tmp_path / "shop.csv")
    path = tmp_path / "grid.toml"
    path.write_text(
        f"""
        [[runs]]
        data = "{tmp_path / "shop.csv"}"
        latest = [5, 8]
        model = "gru4rec"
        training = {{ epochs = 1 }}
        [[runs]]
        data = "hawkes"
        hawkes = {{ users = 20, mean_events = [8, 12] }}
        model = "gru4rec"
        training = {{ epochs = 1 }}
        """
    )
    invoke("lab", "run", path, *folders(tmp_path))
    found = {result.data: result for result in read_results(tmp_path / "results-a")}
    assert set(found) == {"shop-latest5", "shop-latest8", "hawkes-users20-mean_events8", "hawkes-users20-mean_events12"}
    assert found["shop-latest5"].statistics["longest"] == 5
    assert found["shop-latest5"].training_length == 3
    assert found["hawkes-users20-mean_events8"].statistics["users"] == 20


def test_examples_are_kept_of_generated_users_only(tmp_path: Path) -> None:
    cyclic_log(users=20).write_csv(tmp_path / "hawkes-shop.csv")  # real people, whatever the file is called
    path = tmp_path / "grid.toml"
    small = 'model = "mars-t"\noptions = { length = 10, dim = 8 }\ntraining = { epochs = 1 }'
    path.write_text(
        f"""
        [[runs]]
        data = "{tmp_path / "hawkes-shop.csv"}"
        {small}
        [[runs]]
        data = "hawkes"
        hawkes = {{ users = 20, mean_events = 8 }}
        {small}
        """
    )
    invoke("lab", "run", path, *folders(tmp_path))
    found = {r.data: inspection_of(r, tmp_path / "results-a") for r in read_results(tmp_path / "results-a")}
    assert found["hawkes-shop"].decay is not None
    assert found["hawkes-shop"].examples == []
    assert found["hawkes-users20-mean_events8"].examples[0].user.startswith("u")


def test_one_failing_run_does_not_stop_the_others(experiment: Path, tmp_path: Path) -> None:
    broken = '\n[[runs]]\ndata = "DATA"\nmodel = "gru4rec"\ntraining = { epochs = 1, prefix_share = 0.5 }\n'
    experiment.write_text(broken.replace("DATA", str(tmp_path / "shop.csv")) + experiment.read_text())
    arguments = ["lab", "run", str(experiment), "--only", "gru4rec", *folders(tmp_path)]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 1
    assert "1 of 3 runs failed" in str(answer.exception)
    assert "gru4rec/seed 0: prefix_share belongs to models that are not causal" in str(answer.exception)
    assert len(read_results(tmp_path / "results-a")) == 2


def test_a_run_that_another_runner_is_at_is_left_to_it(experiment: Path, tmp_path: Path) -> None:
    chosen = places(experiment, tmp_path)
    with (
        chosen[0][1].mine(),
        pytest.raises(MarsrecError, match=r"(?s)1 of 4.*seed 0: .*another process works on this run"),
    ):
        run_all(chosen)
    assert [place.progress() for _, place in chosen] == ["missing", "done", "done", "done"]


def test_a_run_goes_on_where_it_is_trained_elsewhere(experiment: Path, tmp_path: Path) -> None:
    """What does not decide a result does not keep its training from being resumed."""
    run, place = places(experiment, tmp_path)[0]
    begun = recommender_of(run)
    begun.training = run.training.model_copy(update={"epochs": 1})
    begun.fit(source_of(run).histories, folder=place.state, progress=False)
    experiment.write_text(experiment.read_text().replace("epochs = ", 'accelerator = "cpu", epochs = '))
    invoke("lab", "run", experiment, "--only", "gru4rec/seed 0", *folders(tmp_path))
    (result,) = read_results(tmp_path / "results-a")
    assert (result.name, result.training.accelerator) == (place.name, "cpu")
    assert result.curve[:1] == begun.metrics["curve"]  # seconds and all
    assert len(result.curve) == 2


def test_a_recipes_own_batches_are_trained_and_noted(experiment: Path, tmp_path: Path) -> None:
    text = experiment.read_text().replace('["gru4rec", "mars-t"]', '"fearec"').replace("seed = [0, 1]", "")
    given = text.replace("targets_per_batch = 64", "targets_per_batch = 2048")
    experiment.write_text(text.replace(", targets_per_batch = 64", "") + given)
    place, other = (place for _, place in places(experiment, tmp_path))
    assert place.name != other.name
    invoke("lab", "run", experiment, *folders(tmp_path))
    trained = {result.name: result.training.targets_per_batch for result in read_results(tmp_path / "results-a")}
    assert trained == {place.name: 256, other.name: 2048}


def test_what_the_paper_alone_needs_is_named(experiment: Path, tmp_path: Path) -> None:
    experiment.write_text('efficiency = ["hawkes", "beauty"]\ntheory = "quick"\n' + experiment.read_text())
    chosen = ["--only", "gru4rec/seed 0", *folders(tmp_path)]
    answer = CliRunner().invoke(app, ["lab", "run", str(experiment), *chosen])
    assert "The file also names efficiency on hawkes and beauty, theory (quick)" in answer.stderr
    assert f"`python -m reproduction measure {experiment}`" in answer.stderr
    assert {path.name for path in (tmp_path / "results-a").iterdir() if path.is_dir()} == {"ranks"}
