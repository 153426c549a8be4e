"""Studies and cross-validation: each row is the run that it names, and tables and tests say what the rows say."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from fcamlib import checkpoint, store, tables
from fcamlib.cli import main
from fcamlib.config import STUDIES, Bags, CrossValidation, Grid, Study, StudyGrid
from fcamlib.data.sdc import SDCTask
from fcamlib.data.vectors import bags_task
from fcamlib.errors import DivergenceError, UserError
from fcamlib.tables import TRUTHLESS, frame, means, paired_table

SIZES = {"num_train": 40, "num_validation": 30, "num_test": 50, "batch_size": 20}
SMALL = {
    **SIZES,
    "epochs": 4,
    "num_segments": "3,4",
    "focus_networks": "linear,mlp:1x4:batch",
    "classification_networks": "mlp:1x4",
    "paradigms": "soft,lvml,hybrid",
    "soft_shares": "0.25,0.75",
}


def config_of(**changes: Any) -> Study:
    return StudyGrid.of({**SMALL, **changes}).config()


def test_a_study_is_every_combination_once_made_as_runs_are() -> None:
    config = config_of(seeds="0,7", num_segments="3,4")
    runs = list(config.runs())
    assert len(runs) == config.steps == 2 * 2 * 1 * 4 * 2 and len({run.name for run in runs}) == len(runs)
    asked = {"num_segments": 4, "focus_network": "mlp:1x4:batch", "classification_network": "mlp:1x4", "seeds": 7}
    for paradigm, switch in (("soft", 0), ("lvml", 0), ("hybrid", 1), ("hybrid", 3)):
        given = {**SIZES, "epochs": 4, **asked, "paradigms": paradigm, "switch_epoch": switch}
        assert Grid.of({**given, "evaluate_every": 1_000_000}).configs()[0] in runs
    assert re.fullmatch(r"study-digits-m3-n40-16x2-[0-9a-f]{8}", config.name)
    again = Study.model_validate_json(config.model_dump_json())
    assert again == config and again.name == config.name
    swept = config_of(each_learning_rate="0.1,0.2", paradigms="hybrid", soft_shares=0.5, num_segments=3)
    assert [[p.learning_rates for p in phases] for phases in swept.schedules] == [[(0.1,)] * 2, [(0.2,)] * 2]
    longer = config_of(each_epochs="4,8", paradigms="soft,hybrid", soft_shares=0.5, num_segments=3)
    assert [[p.epochs for p in phases] for phases in longer.schedules] == [[4], [2, 2], [8], [4, 4]]


def test_numbers_of_epochs_are_told_apart(results: Path) -> None:
    found = store.get(config_of(each_epochs="2,4", paradigms="soft", focus_networks="linear", num_segments=3))
    assert found.history["epochs"].tolist() == [2, 4]
    assert ", 2, 4 epochs, 2 trainings over 1 seed" in tables.title(found)
    shorter, longer = (store.get(one).summary["splits"]["test"] for one in found.config.runs())
    table = tables.frame([found]).query("measure == 'loss'").set_index("epochs")["value"]
    assert table.to_dict() == {2: shorter["loss"], 4: longer["loss"]} and shorter["loss"] != longer["loss"]
    assert tables.means(tables.frame([found])).index.names == ["epochs", "paradigm"]


def test_a_row_has_the_numbers_of_the_run_that_it_names(results: Path) -> None:
    config = config_of(num_segments=3, seeds=5, paradigms="hybrid,lvml", soft_shares=0.5, learning_rates="0.05,0.3")
    rows = store.get(config).history
    for row, one in zip(rows.to_dict("records"), config.runs(), strict=True):
        finished = store.get(one)
        test = finished.summary["splits"]["test"]
        assert row["run"] == finished.folder.name and row["num_test"] == test["n"] == 50
        for measure in ("accuracy", "focus_accuracy", "saif", "loss"):
            assert row[measure] == test[measure]
        last = finished.history.iloc[-1]
        assert row["validation_accuracy"] == last["validation_accuracy"]
        assert row["learning_rate"] == finished.history["learning_rate"].iloc[0]
        assert row["last_learning_rate"] == last["learning_rate"]
    assert rows.query("focus == 'linear'")["focus_parameters"].unique().tolist() == [64]
    assert rows.query("focus != 'linear'")["focus_parameters"].unique().tolist() == [64 * 4 + 2 * 4 + 4 + 1]
    assert rows["classifier_parameters"].unique().tolist() == [64 * 4 + 4 + 4 * 3 + 3]
    assert rows["soft_share"].fillna(-1).tolist() == [0.5, -1, 0.5, -1]


@pytest.mark.parametrize(
    ("module", "call", "calls"), [(store, "keep_row", 1), (checkpoint, "save", 1), (checkpoint, "save", 5)]
)
def test_no_training_resumes_from_the_checkpoint_of_another(
    results: Path, monkeypatch: pytest.MonkeyPatch, module: Any, call: str, calls: int
) -> None:
    """Stopped as soon as the first row is kept, or within a training, after which the rows are damaged."""
    config = config_of(num_segments=3, focus_networks="linear", paradigms="soft,lvml", epochs=3)
    monkeypatch.setenv("FCAM_CHECKPOINT_SECONDS", "-1")
    original, made = getattr(module, call), list[Path]()

    def stopping(path: Path, content: Any) -> None:
        original(path, content)
        made.append(path)
        if len(made) == calls:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, call, stopping)
        store.get(config)
    assert store.unfinished() == [config.name]
    if call == "save":
        (store.partial_dir(config) / store.ROWS).write_bytes(b"damaged")
    resumed, anew = (store.get(config, fresh=fresh).history.drop(columns="seconds") for fresh in (False, True))
    pd.testing.assert_frame_equal(resumed, anew)


def test_a_training_that_diverges_is_a_row_and_does_not_stop_the_others(results: Path) -> None:
    deep = {"focus_networks": "mlp:3x64", "classification_networks": "mlp:3x64", "batch_size": 4}
    config = config_of(num_segments=3, paradigms="soft", each_learning_rate="1e-2,100", **deep)
    found = store.get(config)
    rows = found.history
    lost = rows["failure"].notna()
    assert 0 < lost.sum() < len(rows) and rows.loc[lost, ["accuracy", "saif"]].isna().all(axis=None)
    assert rows.loc[lost, "failure"].str.contains("became NaN or infinite").all()
    table = tables.means(tables.frame([found]), measures=tables.METRICS)
    assert table["seeds"].tolist() == ["1", "0 of 1"] and table["accuracy"].tolist()[1] == "-"
    assert table.index.get_level_values("learning rate").tolist() == [0.01, 100.0]


def test_a_switch_that_leaves_a_phase_without_an_epoch_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"^soft_shares=0.1 with epochs=4 leaves a phase without an epoch: give each"):
        config_of(soft_shares="0.1")
    with pytest.raises(UserError, match=r"^soft_shares=0.25 with each_epochs=2 leaves a phase without an epoch"):
        config_of(each_epochs="4,2")


def test_the_command_trains_lists_and_prints(results: Path) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    options += ["--num-segments=3", "--paradigms=soft,hard", "--focus-networks=linear", "--seeds=0,1"]
    config = config_of(num_segments=3, paradigms="soft,hard", focus_networks="linear", seeds="0,1")
    listed = CliRunner().invoke(main, ["study", *options, "--list"]).output
    assert listed.startswith(f"{config.name}  to do, 0 of 4 trainings\n1 run(s) cannot be timed: no similar run")
    shown = CliRunner().invoke(main, ["study", *options])
    assert shown.exit_code == 0, shown.output
    values = store.get(config).history.query("paradigm == 'hard'")["accuracy"].to_numpy()
    (line,) = [line for line in shown.output.splitlines() if line.startswith("HA")]
    assert (
        f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})" in line
        and config.name in shown.output.splitlines()[-1]
    )
    printed = json.loads(CliRunner().invoke(main, ["study", *options, "--json"]).output)
    assert printed["name"] == config.name and [row["accuracy"] for row in printed["rows"]][1::2] == values.tolist()
    assert CliRunner().invoke(main, ["study", *options, "--list"]).output == f"{config.name}  stored\n"
    for name, given in STUDIES.items():
        listed = CliRunner().invoke(main, ["study", name, "--list"]).output
        assert listed.startswith(f"{StudyGrid.of(given).config().name}  ")


def made_up(gain: float = 0.1, loss: float = 0.0) -> pd.DataFrame:
    """Rows of two tasks, five seeds and three paradigms; SA or HA is the better, as the seed has it."""
    rows = [
        {"num_segments": number, "seed": seed, "paradigm": paradigm, "saif": saif, "accuracy": accuracy}
        for number in (4, 10)
        for seed, (soft, hard) in enumerate([(0.6, 0.5), (0.5, 0.6), (0.4, 0.5), (0.5, 0.5), (0.6, 0.5)])
        for paradigm, saif, accuracy in (
            ("soft", soft, 0.9), ("hard", hard, 0.9), ("hybrid", max(soft, hard) + gain + 0.001 * seed, 0.9 - loss)
        )
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_gains_are_paired_by_seed_and_against_the_better_of_both() -> None:
    frame = tables.gain_frame(made_up(), ["num_segments"])
    assert frame["num_segments"].tolist() == [4, 10] and frame["n"].tolist() == [5, 5]
    mean, half = 0.102, 2.776445 * np.sqrt(2.5e-6 / 5)  # Student's t with 4 degrees of freedom
    low, high = mean - half, mean + half
    assert np.allclose(frame[["saif", "saif_low", "saif_high"]], [[mean, low, high]] * 2)
    assert np.allclose(frame["accuracy"], 0) and frame["verdict"].tolist() == ["supported"] * 2
    worse = tables.gain_frame(made_up(gain=-0.2), ["num_segments"])
    assert np.allclose(worse["saif"], -0.198) and worse["verdict"].tolist() == ["contradicted"] * 2
    assert tables.gain_frame(made_up(loss=0.03), ["num_segments"])["verdict"].tolist() == ["contradicted"] * 2
    shown = tables.gain_table(made_up(), ["num_segments"])
    assert shown.index.name == "m" and shown.columns.tolist() == ["SAIF gain", "accuracy gain", "H1", "n"]
    assert list(shown.loc[4]) == [
        f"+{mean:.3f} [+{low:.3f}, +{high:.3f}]",
        "+0.000 [+0.000, +0.000]",
        "supported",
        5,
    ]


def test_a_seed_that_diverged_is_left_out_and_none_left_is_not_run() -> None:
    rows = made_up()
    lost = (rows["num_segments"] == 4) & (rows["paradigm"] == "hard")
    one = rows.copy()
    one.loc[lost & (rows["seed"] == 1), ["saif", "accuracy"]] = np.nan
    assert tables.gain_frame(one, ["num_segments"])["n"].tolist() == [4, 5]
    rows.loc[lost, ["saif", "accuracy"]] = np.nan
    frame = tables.gain_frame(rows, ["num_segments"])
    assert frame["verdict"].tolist() == ["not tested", "supported"] and np.isnan(frame["saif"].iloc[0])
    assert tables.gain_table(rows, ["num_segments"])["SAIF gain"].iloc[0] == "-"


def history(values: dict[str, list[float | None]], sizes: list[int]) -> pd.DataFrame:
    rows = [
        {"repeat": place // 2, "fold": place % 2, "method": method, "n": size, "accuracy": value, "auc": value}
        | {"calibration_error": 0.1, "loss": 0.5, "attention_entropy": None}
        for method, column in values.items()
        for place, (value, size) in enumerate(zip(column, sizes, strict=True))
    ]
    return pd.DataFrame(rows)


def test_tables_weight_folds_by_their_bags_and_pair_the_same_folds() -> None:
    rows = history({"hybrid": [0.5, 1.0, 0.75, 1.0], "soft": [0.25, 1.0, 1.0, 0.5]}, [8, 2, 4, 6]).sample(
        frac=1, random_state=0
    )
    config = SimpleNamespace(kind="cross-validation", repeats=2, folds=2, methods=("soft", "hybrid"))
    result = SimpleNamespace(config=config, summary={"title": "b"}, history=rows, folder=Path("b"))
    table = means(frame([result]), measures=TRUTHLESS, spread="sd")
    assert list(table.index) == ["SA", "hybrid"]
    hybrid = np.array([(8 * 0.5 + 2) / 10, (4 * 0.75 + 6) / 10])
    assert table.loc["hybrid", "accuracy"] == f"{hybrid.mean():.3f} ± {hybrid.std(ddof=1):.3f}"
    assert table.loc["hybrid", "attention entropy"] == "-" and table.loc["hybrid", "repeats"] == "2"
    text = paired_table([result])
    assert list(text.index) == [("b", "hybrid - SA")] and text["verdict"].tolist() == ["no difference found"]


# --- ABMIL ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_clouds() -> SDCTask:
    sizes = {"num_segments": 5, "num_features": 6, "num_classes": 2, "num_train": 9, "num_validation": 4, "num_test": 4}
    return bags_task(Bags(source="clouds", **sizes), seed=0)


@pytest.mark.parametrize("gated", [False, True])
def test_abmil_is_what_torchmil_computes(gated: bool, two_clouds: SDCTask) -> None:
    pytest.importorskip("torchmil")
    from fcamlib.crossval import abmil

    before = torch.random.get_rng_state()
    model, theirs = abmil(two_clouds, gated, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator was used up"
    data = two_clouds.splits["train"]
    assert data.mask is not None and not bool(data.mask.all())
    segments = data.bank.values[data.segments.long()]
    logit, focus_logits = theirs.forward(segments, data.mask, return_att=True)
    output = model(data.bank.values, data.segments.long(), "soft", data.mask)
    torch.testing.assert_close(
        output.log_prob("soft")[:, 1], torch.nn.functional.logsigmoid(logit), atol=1e-6, rtol=1e-5
    )
    masked = focus_logits.masked_fill(~data.mask, -torch.inf)
    torch.testing.assert_close(output.log_alpha.exp(), masked.softmax(dim=1), atol=1e-6, rtol=1e-5)
    loss = theirs.compute_loss(data.label, segments, data.mask)[1]["BCEWithLogitsLoss"]
    torch.testing.assert_close(output.loss("soft", data.label), loss, atol=1e-6, rtol=1e-5)
    again, _ = abmil(two_clouds, gated, seed=3)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=0, atol=0)


def test_abmil_needs_torchmil_and_two_classes(two_clouds: SDCTask, monkeypatch: pytest.MonkeyPatch) -> None:
    from fcamlib.crossval import abmil

    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "torchmil.models", None)
        with pytest.raises(
            UserError, match=r"^the methods abmil and gated-abmil need torchmil: pip install 'fcamlib\[mil"
        ):
            abmil(two_clouds, False, 0)
    pytest.importorskip("torchmil")
    three = SDCTask(two_clouds.splits, ("a", "b", "c"), "three")
    with pytest.raises(UserError, match=r"need two classes, but there are 3: leave them out\.$"):
        abmil(three, False, 0)


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(results: Path, tmp_path: Path) -> str:
    draws = np.random.default_rng(2)
    bag = np.repeat(np.arange(24), 3)
    features = draws.normal(size=(72, 5)) + 3 * (bag % 2)[:, None]
    fold = np.stack([np.arange(24) // 2 % 3, np.arange(24) // 8])
    (tmp_path / "sets").mkdir()
    np.savez(tmp_path / "sets" / "mine.npz", features=features, bag=bag, label=np.arange(24) % 2, fold=fold)
    return f"bags:{tmp_path / 'sets' / 'mine.npz'}"


OPTIONS = ("--methods", "soft,hybrid", "--epochs", "4", "--learning-rates", "0.01", "--batch-size", "8")


def command(source: str, *options: str) -> Any:
    return CliRunner().invoke(main, ["crossval", "--dataset", source, *OPTIONS, *options])


def test_the_command_shows_the_table(source: str) -> None:
    first = command(source)
    assert re.search(r"^SA +2 +\d\.\d{3} ± ", first.stdout, re.MULTILINE) and first.stderr == ""
    (stored,) = store.every(CrossValidation)
    rows = stored.history
    assert len(rows) == 2 * 3 * 2 and (rows["n"] == 8).all() and rows["accuracy"].mean() > 0.8, "the task is easy"
    assert not rows.duplicated(["repeat", "fold", "method"]).any()
    assert stored.summary["title"] == "mine" and stored.summary["provenance"]["train_seconds"] > 0
    assert command(source).stdout == first.stdout


def test_a_fold_that_diverges_costs_its_repeat_and_does_not_stop_the_others(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fcamlib import crossval

    diverges, fit = iter([True, *[False] * 11, *[True] * 3]), crossval.fit  # SA's first fold; a second command's all

    def diverging(*arguments: Any) -> Any:
        if next(diverges):
            raise DivergenceError("the soft loss became NaN or infinite")
        return fit(*arguments)

    monkeypatch.setattr(crossval, "fit", diverging)
    shown = command(source)
    assert re.search(r"^SA +1 of 2 +\d\.\d{3} ", shown.stdout, re.MULTILINE)
    assert re.search(r"^hybrid +2 +\d\.\d{3} ± ", shown.stdout, re.MULTILINE)
    (stored,) = store.every(CrossValidation)
    lost = stored.history["failure"].notna()
    assert stored.history.loc[lost, ["repeat", "fold", "method"]].to_numpy().tolist() == [[0, 0, "soft"]]
    kept = tables.frame([stored]).query("measure == 'accuracy' and paradigm == 'soft'")
    second = stored.history.query("repeat == 1").pivot(index="fold", columns="method", values="accuracy")
    assert kept["value"].tolist() == pytest.approx([second["soft"].mean()]), "folds of equal size"
    (difference,) = tables.paired_table([stored])["difference"]
    assert float(difference) == pytest.approx((second["hybrid"] - second["soft"]).mean(), abs=5e-4)
    left = command(source, "--repeats", "1", "--methods", "soft", "--fresh")
    assert left.exit_code == 2 and left.stderr.startswith("fcam: the soft loss became NaN or infinite")
    assert not [*diverges], "every training was asked for"


def test_wrong_parameters_of_folds_are_one_sentence(source: str) -> None:
    for options, said in {
        (
            "--methods",
            "soft,forest",
        ): "methods='forest' is not allowed: choose soft, hard, lvml, hybrid, abmil or gated-",
        ("--repeats", "3"): f"repeats=3 exceeds the repeats in dataset='{source}': give at most 2.",
        ("--dataset", "digits"): "dataset='digits' cannot be cross-validated: give bags:PATH",
        ("--dataset", "bags:none.npz"): "dataset='bags:none.npz': there is no file",
    }.items():
        result = command(source, *options)
        assert result.exit_code == 2 and result.stderr.startswith(f"fcam: {said}"), result.output
