"""Captioning runs: shared phases, resumption to the same numbers, the command, tables."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file
from small_captions import SMALL, config, model_of, small_task

from fcamlib import notebook, plots, store, tables
from fcamlib.captioning import training as caption_training
from fcamlib.captioning.evaluation import CaptionEvaluator
from fcamlib.captioning.training import CaptionTrainer
from fcamlib.cli import main
from fcamlib.config import CaptionGrid, CaptionRun, Scenes, grids
from fcamlib.data.captions import caption_task
from fcamlib.data.features import ENCODERS, FrozenEncoder
from fcamlib.errors import DivergenceError


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of this test's own, and the small task in place of the scenes."""
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path))
    monkeypatch.setattr(caption_training, "cached_task", lambda data, seed, device=None: small_task(seed))
    yield tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> list[store.Result]:
    """Runs of one epoch a phase: two seeds of all paradigms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCAM_RESULTS", str(tmp_path_factory.mktemp("finished")))
        patch.setattr(caption_training, "cached_task", lambda data, seed, device=None: small_task(seed))
        given = {"epochs": 2, "switch_epoch": 1}
        paradigms = ("soft", "hard", "hybrid")
        return [store.get(config(name, seeds=str(seed), **given)) for seed in (0, 1) for name in paradigms]


def test_soft_attention_and_the_hybrid_share_their_first_phase_alone(
    finished: list[store.Result],
) -> None:
    soft, hard, hybrid = (run.history.drop(columns="seconds") for run in finished[:3])
    assert_frame_equal(soft.iloc[:1], hybrid.iloc[:1])
    assert soft["paradigm"].tolist() == ["soft"] * 2 and hybrid["paradigm"].tolist() == ["soft", "hard"]
    assert soft["train_loss"][1] != hybrid["train_loss"][1]
    assert hard["train_loss"][0] != soft["train_loss"][0]
    first = finished[0].config.prefix
    assert first is not None and first == finished[2].config.prefix
    assert (finished[0].folder.parent / first.name / store.SUMS).is_file()


def test_the_weights_at_the_switch_are_measured_as_the_hard_phase_reads_them(finished: list[store.Result]) -> None:
    soft, hard, hybrid = finished[:3]
    assert "switch" not in soft.summary and "switch" not in hard.summary
    task = small_task()
    model = model_of(hybrid.config, task)
    model.load_state_dict(load_file(hybrid.folder.parent / hybrid.config.prefix.name / "model.safetensors"))
    for split, found in hybrid.summary["switch"].items():
        evaluator = CaptionEvaluator(task, split, 15, caption_training.numerics_of(hybrid.config.training))
        assert evaluator.evaluate(model, "hard").summary(task.splits[split].references) == found
    assert hybrid.history["test_loss"][0] != hybrid.summary["switch"]["test"]["loss"]


def test_a_loss_that_is_not_a_number_stops_with_its_step() -> None:
    run_config = config("soft", decoder_learning_rate=0.01)
    task = small_task()
    model = model_of(run_config, task)
    with torch.no_grad():
        model.output.bias[4] = torch.nan
    assert run_config.prefix is not None
    trainer = CaptionTrainer(run_config.prefix, model, task)
    with pytest.raises(DivergenceError, match=r"the soft loss became NaN or infinite at step 1 of phase 1 \(epoch 1\)"):
        trainer.train(None, None)


def test_training_learns_to_name_and_to_attend() -> None:
    """Four cells, two categories: attention finds the object's cell, where uniform weights have 0.25."""
    given = {"epochs": 30, "switch_epoch": 20, "attention_dim": 8, "hidden_dim": 16, "evaluate_every": 30}
    finished = store.get(config("soft", **given))
    test = finished.summary["splits"]["test"]
    assert test["mentioned"] == 1.0 and test["bleu1"] > 99 and test["a_z"] > 0.35, test


def test_recorded_scenes_are_part_of_the_study_in_the_profile() -> None:
    """Both decoders, three rates and two lengths of the second phase, five seeds, with SA's second phase as control."""
    documents = grids(Path(__file__).resolve().parents[2] / "profiles" / "evidence.yaml")
    runs = [run for given in documents if given["dataset"] == "scenes" for run in CaptionGrid.of(given).configs()]
    names = {run.name for run in runs}
    assert len(names) == len(runs) == 2 * (15 + 5 * 10)
    recorded = store.every(CaptionRun, recorded=True)
    assert {run.config.name for run in recorded if run.config.data.source == "scenes"} <= names


def test_the_command_trains_and_shows_what_is_stored() -> None:
    options = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    result = CliRunner().invoke(main, ["caption", "--paradigm", "soft,hybrid", "--seed", "0", *options])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 2 and all("BLEU-4" in line and "(n = 9 pictures, " in line for line in lines)
    shown = CliRunner().invoke(main, ["caption", "--paradigm", "hybrid", "--json", *options])
    assert json.loads(shown.output)["name"] in lines[1]
    refused = CliRunner().invoke(main, ["caption", "--paradigm", "lvml"])
    assert refused.exit_code == 2 and refused.output.startswith("fcam: paradigms='lvml' is not allowed")


def test_frozen_features_of_a_folder_in_the_layout_of_coco(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write_coco: Callable[[Path, Any, int], str]
) -> None:
    """Scenes are written in that layout; a small network stands in for VGG19, whose weights are not at hand."""
    torch.manual_seed(0)
    network = FrozenEncoder(torch.nn.Conv2d(3, 6, 16, stride=16), "small", "0" * 64)
    monkeypatch.setitem(ENCODERS, "vgg19", lambda weights: network)
    monkeypatch.setattr(caption_training, "cached_task", caption_task)
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "data"))
    scenes = Scenes(num_train=12, num_validation=2, num_test=7, image_size=64)
    given = {
        "dataset": write_coco(tmp_path / "written", scenes, 0),
        "num_validation": 2,
        "image_size": 64,
        "epochs": 2,
        "switch_epoch": 1,
        "precision": "bfloat16",
    }
    run_config = config("hybrid", **given)
    assert run_config.model.encoder == "features" and str(tmp_path) not in run_config.portable.model_dump_json()
    finished = store.get(run_config)
    kept = finished.arrays("examples.npz")
    assert kept["alpha"].shape[::2] == (6, 16) and "picture" not in kept and not kept["box"].size, "copied"
    assert not any(name.startswith("encoder") for name in load_file(finished.folder / "model.safetensors"))
    assert finished.summary["splits"]["test"]["n"] == 7 and finished.summary["splits"]["test"]["n_objects"] > 0
    plots.word_attention(**notebook.captions([finished], 0))


def test_tables_and_figures_are_made_of_runs(finished: list[store.Result]) -> None:
    runs = finished
    table = tables.means(tables.frame(runs), measures=tables.BLEU, digits=1)
    expected = np.mean([run.summary["splits"]["test"]["bleu4"] for run in runs if run.config.paradigm == "hard"])
    assert str(table.loc["HA", "BLEU-4"]).startswith(f"{expected:.1f} (") and table.loc["HA", "seeds"] == "2"
    shares = tables.histogram_table(runs)
    assert shares.sum(axis=1).to_numpy() == pytest.approx(100, abs=0.3)
    claims = tables.claims_table({"scenes": tables.criteria(runs)})
    saif = [[run.summary["splits"]["test"]["saif"] for run in runs if run.config.paradigm == name]
            for name in ("hybrid", "soft")]  # fmt: skip
    assert claims["value"].iloc[0].startswith(f"{(np.array(saif[0]) - np.array(saif[1])).mean():.3f} (")
    assert set(tables.claims_table({"scenes": tables.criteria(runs[:2])}).index.get_level_values("verdict")) == {
        "not tested"
    }
    frame = tables.history_frame(runs, tables.CAPTIONS)
    assert len(frame) == 12 and frame["bleu4"].between(0, 1).all()
    switch = tables.switch_epoch([run for run in runs if run.config.paradigm == "soft"])
    assert switch == tables.switch_epoch(runs) == 1, "every captioning run has two phases"
    plots.caption_curves(frame, switch)
    shown = notebook.captions(runs, 1)
    assert list(shown["examples"]) == ["soft", "hard", "hybrid"]
    words = shown["examples"]["hard"].words
    assert "<end>" not in words and len(shown["examples"]["hard"].alpha) == len(words)
    figure = plots.word_attention(**shown)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == [word for example in shown["examples"].values() for word in example.words or ["no words"]]
