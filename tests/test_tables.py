"""Tables and examples from runs in the store: numbers in them are those of the runs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcamlib import notebook, running, store, tables
from fcamlib.config import Grid, Run, Text
from fcamlib.data.posts import PHRASES
from fcamlib.data.text import text_task
from fcamlib.errors import UserError
from fcamlib.evaluation import agreement, evaluate
from fcamlib.metrics import focus_prediction_histogram, saif, saif_curve
from fcamlib.notebook import posts_table, word_attention
from fcamlib.numerics import Numerics
from fcamlib.running import trained_model
from fcamlib.store import Result
from fcamlib.tables import AGREEMENT, frame, means

SMALL = {"num_train": 64, "num_validation": 32, "num_test": 40, "epochs": 4, "seeds": (0, 1), "batch_size": 16}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Four paradigms, two seeds, trained small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCAM_RESULTS", str(tmp_path_factory.mktemp("results")))
        return store.get_all(Grid.of(SMALL).configs())


def of(runs: list[Result], paradigm: str) -> list[Result]:
    return [run for run in runs if run.config.paradigm == paradigm]


def test_summaries_follow_from_the_scores_of_each_instance_and_the_last_epoch(runs: list[Result]) -> None:
    for run in runs:
        scores, test, last = run.arrays("scores.npz"), run.summary["splits"]["test"], run.history.iloc[-1]
        a_z, s_y = scores["test_a_z"], scores["test_s_y"]
        expected = {"saif": saif(a_z, s_y), "accuracy": scores["test_prediction_hit"].mean()}
        expected["focus_accuracy"] = scores["test_focus_hit"].mean()
        for metric, value in expected.items():
            assert last[f"test_{metric}"] == pytest.approx(value, abs=1e-12) == test[metric]
        np.testing.assert_allclose(test["histogram"], focus_prediction_histogram(a_z, s_y))
        np.testing.assert_allclose(test["saif_curve"], saif_curve(a_z, s_y))
        assert test["n"] == 40


def test_means_show_an_interval_or_the_range_of_the_runs(runs: list[Result]) -> None:
    table = tables.means(tables.frame(runs))
    assert list(table.index) == ["SA", "HA", "LVML", "hybrid"]
    values = [run.summary["splits"]["test"]["saif"] for run in of(runs, "lvml")]
    assert table.loc["LVML", "SAIF"] == f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
    after = int(of(runs, "hybrid")[0].history["phase"].sum())  # epochs after the switch: fewer than five
    end = [run.history["test_accuracy"].tail(after).mean() for run in of(runs, "soft")]
    alone = [run.history for run in of(runs, "soft")]
    assert 0 < after < 5 and tables.last_epochs(alone) == min(5, len(alone[0]))
    shown = tables.means(tables.frame(runs, at="end")).loc["SA", "accuracy"]
    assert shown == f"{np.mean(end):.3f} ({min(end):.3f} to {max(end):.3f})"
    one = [run for run in runs if run.config.seed == 1]
    assert "[" not in str(tables.means(tables.frame(one)).loc["SA", "accuracy"])
    numbers = tables.summary_frame(runs).query("paradigm == 'lvml' and metric == 'saif'")
    assert numbers["mean"].tolist() == pytest.approx([np.mean(values)]) and numbers["n"].tolist() == [2]
    assert numbers[["low", "high"]].isna().all(axis=None), "two seeds have no interval"
    grids = [np.array(run.summary["splits"]["train"]["histogram"]) for run in of(runs, "hard")]
    np.testing.assert_allclose(tables.histograms(runs)["train"]["hard"], (grids[0] + grids[1]) / 2)
    cells = tables.histograms(runs)["test"]["soft"]
    whole = [cells[4, 4], cells[:4, 4].sum(), cells[4, :4].sum(), cells[:4, :4].sum()]
    assert list(tables.histogram_table(runs).loc["SA"]) == np.round(whole, 1).tolist()


def test_only_shares_have_the_intervals_of_shares_near_an_edge() -> None:
    values = np.linspace(0.932, 0.972, 10)
    rows = [("soft", seed, name, value) for name in ("saif", "loss") for seed, value in enumerate(values)]
    table = means(pd.DataFrame(rows, columns=["paradigm", "seed", "measure", "value"]), measures=("saif", "loss"))
    shown = [tables.interval_text(values, is_share=is_share) for is_share in (True, False)]
    assert table.to_numpy().tolist() == [["10", *shown]] and shown[0] != shown[1]


def test_history_frame_has_every_epoch_of_every_run(runs: list[Result]) -> None:
    frame = tables.history_frame(runs)
    assert len(frame) == 4 * 2 * 4
    row = frame[(frame.paradigm == "hybrid") & (frame.seed == 1) & (frame.epoch == 3)].iloc[0]
    history = of(runs, "hybrid")[1].history
    assert row["saif"] == history.loc[history.epoch == 3, "test_saif"].item()
    assert tables.switch_epoch(runs) == 2


def test_as_many_examples_are_kept_as_are_small(monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    """A digit takes 64 bytes, so a mosaic of three takes 192."""
    configs = Grid.of({**SMALL, "num_segments": 3, "paradigms": "soft", "epochs": 1, "seeds": (0, 1, 2)}).configs()
    for config, budget, number in zip(configs, (2**18, 3 * 192 - 1, 191), (8, 2, 0), strict=True):
        monkeypatch.setattr(running, "EXAMPLE_BYTES", budget)
        kept = store.get_all([config])[0].arrays("examples.npz")
        assert {name: len(values) for name, values in kept.items()} == dict.fromkeys(kept, number)
        assert bool(kept) == (number > 0)
    with pytest.raises(UserError, match=r"^no example of 'digits, m = 3, 64 mosaics, 1 epoch' is kept: recorded"):
        notebook.gallery(store.get_all(configs[2:]))


def test_tasks_stand_in_the_order_of_their_numbers(runs: list[Result]) -> None:
    assert list(tables.tasks(runs)) == ["digits, m = 5, 64 mosaics, 4 epochs"]
    soft = [run for run in runs if run.config.paradigm == "soft"]
    assert tables.paradigms(tables.recorded(soft)[1]) == ["soft"]
    assert tables.ordered(["x", "hybrid", "soft"]) == ["soft", "hybrid", "x"]
    sizes = [(m, n) for m in (5, 20, 100) for n in (300, 9000, 30000)]
    made = [fake({**SMALL, "seeds": (0,), "paradigms": "soft", "num_segments": m, "num_train": n}) for m, n in sizes]
    assert list(tables.tasks(made[::-1])) == [f"a task, m = {m}, {n:,} mosaics, 4 epochs" for m, n in sizes]


def test_provenance_has_a_row_per_task_commit_and_machine_with_the_range_of_seconds(runs: list[Result]) -> None:
    assert tables.provenance([]).empty
    live = tables.provenance(runs)
    assert live["n"].sum() == len(runs) and {*live["commit"]} == {"computed here"} and {*live["seconds"]} == {""}
    kept = store.every(Run, recorded=True)
    table = tables.provenance([*runs, *kept])
    assert table["n"].sum() == len(kept) + len(runs)
    assert not table.reset_index().drop(columns=["n", "seconds"]).duplicated().any()
    several = table[table["n"] > 1].drop(index=live.index)
    name, row = several.index[0], several.iloc[0]
    own = [run for run in kept if run.folder.name.startswith(f"{name}-{run.config.paradigm}-s")]
    told = [run.summary["provenance"] for run in own]
    assert len({run.config.paradigm for run in own}) > 1
    seconds = [one["train_seconds"] for one in told if (one["commit"], one["date"]) == (row["commit"], row["date"])]
    assert (row["n"], row["seconds"]) == (len(seconds), f"{min(seconds):,.0f} to {max(seconds):,.0f}")


def fake(given: dict, title: str = "a task") -> Result:
    """An unfinished run with a title."""
    (config,) = Grid.of(given).configs()
    run = Result[Run](Path("nowhere") / config.name)
    run.__dict__.update(config=config, summary={"title": title})
    return run


@pytest.mark.parametrize(
    ("changes", "titles"),
    [
        ({}, [""]),
        ({"learning_rates": "0.01"}, [", learning rate 0.01", ", learning rate 0.05"]),
        ({"momentum": 0.5}, [", optimizer ['sgd', 0.5]", ", optimizer ['sgd', 0.9]"]),
        ({"optimizer": "adam"}, ["", " with Adam"]),
        ({"focus_network": "linear"}, [", focus digits", ", focus linear"]),
        ({"precision": "float64", "threads": 2}, [""]),
    ],
)
def test_what_differs_in_more_than_paradigm_and_seed_is_never_pooled(changes: dict, titles: list[str]) -> None:
    given = {**SMALL, "paradigms": "soft"}
    made = [fake({**given, "seeds": (0,)}), fake({**given, **changes, "seeds": (1,)})]
    found = tables.tasks(made)
    assert [name.removeprefix("a task, m = 5, 64 mosaics, 4 epochs") for name in found] == titles
    assert sum(len(group) for group in found.values()) == 2


def test_each_switch_of_the_hybrid_is_compared_with_the_same_others() -> None:
    given = {**SMALL, "seeds": (0,)}
    made = [fake({**given, "paradigms": name}) for name in ("soft", "hard", "lvml")]
    made += [fake({**given, "paradigms": "hybrid", "switch_epoch": switch}) for switch in (1, 3)]
    found = tables.tasks(made)
    assert [tables.paradigms(group) for group in found.values()] == [["soft", "hard", "lvml", "hybrid"]] * 2
    assert [tables.switch_epoch(group) for group in found.values()] == [1, 3]
    slower = [fake({**given, "paradigms": name, "learning_rates": "0.01"}) for name in ("soft", "hard", "hybrid")]
    both = tables.tasks([*made[:4], *slower])
    assert [name.rsplit("learning rate ")[1] for name in both] == ["0.01", "0.05"]
    assert [len(group) for group in both.values()] == [3, 4]


def test_stored_weights_give_the_stored_scores(runs: list[Result]) -> None:
    run = of(runs, "hybrid")[1]
    model, task = trained_model(run)
    scores = evaluate(model, task.splits["test"], ["hard"], Numerics.of(run.config.training))["hard"]
    np.testing.assert_allclose(scores.s_y, run.arrays("scores.npz")["test_s_y"], atol=1e-6)
    np.testing.assert_allclose(scores.a_z, run.arrays("scores.npz")["test_a_z"], atol=1e-6)


def test_gains_over_the_switch_come_from_what_is_stored(runs: list[Result]) -> None:
    rows = tables.rows_at(runs, 3)
    for run, (_, row) in zip(runs, rows.iterrows(), strict=True):
        assert row["seed"] == run.config.seed
        assert row["soft_share"] == {"soft": 1, "hard": 0, "lvml": 0, "hybrid": 2 / 3}[run.config.paradigm]
        assert row["saif"] == run.history["test_saif"].iloc[2], "one epoch follows the hybrid's switch"
    alone = tables.rows_at(of(runs, "soft"), 3)["saif"]
    assert alone.tolist() == pytest.approx([run.history["test_saif"].iloc[:3].mean() for run in of(runs, "soft")])
    gains = tables.seed_gains(rows)
    for seed in (0, 1):
        of_seed = rows[rows["seed"] == seed].set_index("paradigm")["accuracy"]
        (found,) = gains.loc[gains["seed"] == seed, "accuracy"]
        assert found == pytest.approx(of_seed["hybrid"] - max(of_seed["soft"], of_seed["hard"]), abs=1e-12)
    assert gains["share"].eq(2 / 3).all()
    lost = rows[(rows["seed"] != 0) | (rows["paradigm"] != "hard")]  # seed 0 has no HA: the other keeps its number
    assert tables.seed_gains(lost)["seed"].tolist() == [1]


def test_the_rule_switches_at_the_first_loss_below_a_share_of_guessing(runs: list[Result]) -> None:
    loss = of(runs, "soft")[1].history["train_loss"].to_numpy()
    assert np.all(np.diff(loss) < 0), "the test needs a loss that falls"
    for epoch, value in enumerate(loss, start=1):
        share = (value + 1e-9) / np.log(3)
        assert tables.rule_epochs(of(runs, "soft")[1:], share).to_dict() == {1: epoch}
    assert tables.rule_epochs(of(runs, "soft"), 1e-6).empty


SIZES = {"num_train": 120, "num_validation": 30, "num_test": 40, "max_tokens": 8}
CONFIG = Text(source="keywords", **SIZES)


@pytest.fixture(scope="module")
def text_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Result]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCAM_RESULTS", str(tmp_path_factory.mktemp("results")))
        grid = {"dataset": "keywords", "paradigms": "lvml,logit_mixture", "epochs": 1, "seeds": "2,5", **SIZES}
        yield store.get_all(Grid.of(grid).configs())


def test_agreement_is_that_of_the_trained_models(text_runs: list[Result]) -> None:
    table = means(frame(text_runs), measures=AGREEMENT)
    assert table.index.tolist() == ["LVML", "logit mixture"] and table["seeds"].tolist() == ["2", "2"]
    values = []
    for run in text_runs[:2]:
        model, task = trained_model(run)
        values.append(agreement(model, task.splits["test"], "lvml", numerics=Numerics.of(run.config.training)))
    for column, name in (("token F1", "token_f1"), ("AUPRC", "auprc"), ("sufficiency", "sufficiency")):
        mean = np.mean([value[name] for value in values])
        assert table[column].iloc[0].startswith(f"{mean:.3f} (")  # two seeds: the range, no interval


def test_words_and_attention_of_a_generated_post_and_of_no_real_one(text_runs: list[Result], tmp_path: Path) -> None:
    shown = word_attention(text_runs, place=3)
    marked = " ".join(shown.index[shown["rationale"] == "yes"])
    assert marked in {phrase for phrases in PHRASES.values() for phrase in phrases}
    for column in shown.columns[1:]:
        assert shown[column].astype(float).sum() == pytest.approx(1.0, abs=0.05)
    run = Result[Run](tmp_path)
    run.__dict__["config"] = text_runs[0].config.model_copy(update={"data": Text(source="hatexplain")})
    with pytest.raises(UserError, match="posts of dataset='hatexplain' are not shown"):
        word_attention([run])


def test_posts_are_counted_and_never_shown() -> None:
    task = text_task(CONFIG, 0)
    shown, train = posts_table(task).loc["train"], task.splits["train"]
    assert train.mask is not None
    assert (shown["posts"], shown["longest"], shown["unknown words"]) == (120, 8, "0.0%")
    assert list(shown[["weather", "music", "neither"]]) == np.bincount(train.label).tolist()
    assert shown["with rationale"] == int((train.label < 2).sum())
    lengths = train.mask.sum(dim=1).double()
    assert shown["words per post"] == pytest.approx(float(lengths.mean()), abs=0.051)
    share = (train.foreground.sum(dim=1) / lengths)[train.label < 2].mean()
    assert shown["marked words"] == f"{float(share):.0%}"
