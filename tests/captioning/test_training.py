"""Captioning runs: shared phases, the command, tables; measures of captions and attention by hand and step by step."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file

from fcamlib import notebook, plots, store, tables
from fcamlib.captioning import training as caption_training
from fcamlib.captioning.decoding import read
from fcamlib.captioning.evaluation import CaptionEvaluator, bleu, bleu_settings, caption_histogram, cider, coverage
from fcamlib.captioning.model import Captioner
from fcamlib.captioning.training import CaptionTrainer, new_model, numerics_of
from fcamlib.cli import main
from fcamlib.config import CaptionGrid, CaptionRun, Scenes, grids
from fcamlib.data.captions import CaptionData, CaptionTask, ObjectBoxes, Phrase, caption_task
from fcamlib.data.features import ENCODERS, FrozenEncoder, normalised
from fcamlib.data.sdc import Bank
from fcamlib.errors import DataError, DivergenceError
from fcamlib.numerics import PLAIN

WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a", "dark", "light", "dot", "bar", "spot")
CATEGORIES = ("dot", "bar")
SIZES = {"train": 20, "validation": 5, "test": 9}
SMALL = {
    "epochs": 4, "switch_epoch": 2, "batch_size": 7, "precision": "float64", "device": "cpu", "region_dim": 8,
    "attention_dim": 4, "embedding_dim": 4, "hidden_dim": 6, "encoder_learning_rate": 0.01,
    "decoder_learning_rate": 0.01,
}  # fmt: skip


def split(number: int, seed: int) -> CaptionData:
    """Pictures of 16 x 16 pixels with an object in one of their four cells, each with two captions of two lengths."""
    draws = np.random.default_rng(seed)
    cell, category, shade = (draws.integers(high, size=number) for high in (4, 2, 2))
    pixels = np.full((number, 16, 16, 3), 90, dtype=np.uint8)
    captions, boxes = [], []
    for row in range(number):
        y, x = divmod(int(cell[row]), 2)
        part = pixels[row, 8 * y : 8 * y + 8, 8 * x : 8 * x + 8]
        part[:, :, category[row]] = 255 * shade[row]
        noun = CATEGORIES[category[row]]
        captions.append((("a", ("dark", "light")[shade[row]], noun), (noun,)))
        boxes.append(ObjectBoxes((int(category[row]),), torch.tensor([[x / 2, y / 2, x / 2 + 0.5, y / 2 + 0.5]])))
    flat = [(row, words) for row, own in enumerate(captions) for words in own]
    tokens = torch.zeros(len(flat), 5, dtype=torch.long)
    for place, (_, words) in enumerate(flat):
        numbers = [1, *(WORDS.index(word) for word in words), 2]
        tokens[place, : len(numbers)] = torch.tensor(numbers)
    picture = torch.tensor([row for row, _ in flat])
    bank = Bank(torch.from_numpy(pixels), 1 / 127.5, -1.0, pictures=True)
    return CaptionData(bank, picture, tokens, tuple(captions), tuple(boxes), torch.arange(number))


def small_task(seed: int = 0) -> CaptionTask:
    splits = {name: split(number, seed + place) for place, (name, number) in enumerate(SIZES.items())}
    naming = torch.tensor([-1] * 7 + [0, 1, 0])  # a spot is a dot
    return CaptionTask(splits, WORDS, CATEGORIES, naming, "scenes")


def config(paradigm: str = "hybrid", **changes: Any) -> CaptionRun:
    (found,) = CaptionGrid.of({**SMALL, "paradigms": paradigm, **changes}).configs()
    return found


@pytest.fixture(scope="module", autouse=True)
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A store of this file's own, and the small task in place of the scenes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCAM_RESULTS", str(tmp_path_factory.mktemp("results")))
        patch.setattr(caption_training, "cached_task", lambda data, seed, device=None: small_task(seed))
        yield


@pytest.fixture(scope="module")
def finished(small_world: None) -> list[store.Result]:
    """Runs of one epoch a phase: two seeds of all paradigms."""
    given = {"epochs": 2, "switch_epoch": 1}
    return [store.get(config(name, seeds=str(seed), **given)) for seed in (0, 1) for name in ("soft", "hard", "hybrid")]


def measured(split: str = "test", chunk: int = 250, **changed: Any) -> tuple[Captioner, CaptionEvaluator]:
    """A model whose attention is far from uniform, and an evaluator of the small task with fields `changed`."""
    run_config, task = config("soft"), small_task()
    task = replace(task, splits={**task.splits, split: replace(task.splits[split], **changed)})
    model, evaluator = new_model(run_config, task), CaptionEvaluator(task, split, 15, numerics_of(run_config.training))
    evaluator.chunk = chunk
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)
    return model, evaluator


def test_soft_attention_and_the_hybrid_share_their_first_phase_alone(finished: list[store.Result]) -> None:
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
    model = new_model(hybrid.config, task)
    model.load_state_dict(load_file(hybrid.folder.parent / hybrid.config.prefix.name / "model.safetensors"))
    for split, found in hybrid.summary["switch"].items():
        evaluator = CaptionEvaluator(task, split, 15, numerics_of(hybrid.config.training))
        assert evaluator.evaluate(model, "hard").summary() == found
    assert hybrid.history["test_loss"][0] != hybrid.summary["switch"]["test"]["loss"]


def test_a_loss_that_is_not_a_number_stops_with_its_step() -> None:
    run_config, task = config("soft"), small_task()
    model = new_model(run_config, task)
    torch.nn.init.constant_(model.output.bias, torch.nan)
    trainer = CaptionTrainer(run_config, model, task)
    with pytest.raises(DivergenceError, match=r"the soft loss became NaN or infinite at step 1 of phase 2 \(epoch 1\)"):
        trainer.train()


def test_training_learns_to_name_and_to_attend() -> None:
    """Four cells, two categories: attention finds the object's cell, where uniform weights have 0.25."""
    given = {"epochs": 30, "switch_epoch": 20, "attention_dim": 8, "hidden_dim": 16, "evaluate_every": 30}
    finished = store.get(config("soft", **given))
    test = finished.summary["splits"]["test"]
    assert test["mentioned"] == 1.0 and test["bleu1"] > 99 and test["a_z"] > 0.35, test


def test_recorded_scenes_are_part_of_the_study_in_the_profile() -> None:
    """Both decoders, three rates and two lengths of the second phase, five seeds, with SA's second phase as control."""
    documents = grids(Path(__file__).resolve().parents[2] / "profiles" / "evidence.yaml")
    runs = [run for given in documents if given.get("dataset") == "scenes" for run in CaptionGrid.of(given).configs()]
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
    given = {"num_validation": 2, "image_size": 64, "epochs": 2, "switch_epoch": 1, "precision": "bfloat16"}
    run_config = config("hybrid", dataset=write_coco(tmp_path / "written", scenes, 0), **given)
    assert run_config.model.encoder == "features" and str(tmp_path) not in run_config.portable.model_dump_json()
    finished = store.get(run_config)
    assert finished.summary["title"] == "written (VGG-19 features)"
    shown, plain = (caption_task(run_config.data.model_copy(update={"features": name}), 0).splits["test"].pictures
                    for name in ("vgg19", ""))  # fmt: skip
    with torch.no_grad():
        direct = network.module(normalised(plain.values)).flatten(2).transpose(1, 2)
    assert torch.allclose(shown.values.float(), direct, rtol=2**-10, atol=1e-4), "each picture's features are its own"
    kept = finished.arrays("examples.npz")
    assert kept["alpha"].shape[::2] == (6, 16) and "picture" not in kept and not kept["box"].size, "copied"
    assert not any(name.startswith("encoder") for name in load_file(finished.folder / "model.safetensors"))
    assert finished.summary["splits"]["test"]["n"] == 7 and finished.summary["splits"]["test"]["n_objects"] > 0
    plots.word_attention(**notebook.captions([finished], 0))
    file = tmp_path / "written" / "annotations" / "captions_train2014.json"
    file.write_text(file.read_text().replace("circle", "disc"))
    with pytest.raises(DataError, match="is not that for which the config was made"):
        store.get(run_config.model_copy(update={"seed": 1}))


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
    alone = tables.claims_table({"scenes": tables.criteria(runs[:2])})  # no hybrid
    assert set(alone.index.get_level_values("verdict")) == {"not tested"}
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


def test_bleu_equals_values_computed_by_hand() -> None:
    captions = [["a", "red", "square", "left", "of", "a", "circle"], ["a", "a", "b"]]
    references = [[["a", "red", "square", "left", "of", "a", "blue", "circle"]], [["a", "b", "c", "d"], ["b", "a"]]]
    # Unigrams: all 7 of the first; "a" counts once as no reference has it twice, "b" once: 2 of 3. 9/10.
    # Bigrams: 5 of 6 (not "a circle"); "a b" of "a a", "a b": 1 of 2. 6/8. Trigrams: 4 of 5; 0 of 1. 4/6. Of 4: 3/4.
    # Lengths: 7 + 3 = 10; closest references 8 and, of 4 and 2 equally close to 3, the shorter: 2. 10: no penalty.
    precision = [9 / 10, 6 / 8, 4 / 6, 3 / 4]
    found = bleu(captions, references)
    for order in range(1, 5):
        expected = 100 * math.prod(precision[:order]) ** (1 / order)
        assert found[f"bleu{order}"] == pytest.approx(expected, abs=1e-10)


def test_bleu_penalises_short_captions_and_takes_words_as_they_are() -> None:
    found = bleu([("a", "b")], [[("a", "b", "c", "d")]])
    assert found["bleu1"] == pytest.approx(100 * math.exp(1 - 4 / 2), abs=1e-10) and found["bleu3"] == 0.0
    assert bleu([("it's", "A", "<unk>")], [[("it's", "A", "<unk>")]])["bleu3"] == pytest.approx(100)
    assert bleu([("a",)], [[("A",)]])["bleu1"] == 0.0
    settings = bleu_settings()
    assert "tok:none" in settings and "smooth:none" in settings and "case:mixed" in settings


def test_coverage_equals_hand_computed_overlaps_and_counts_a_union_once() -> None:
    # A 2 x 2 grid; the box spans x 0.25..0.75 and y 0.5..0.75: a quarter of each lower cell.
    assert coverage(np.array([[0.25, 0.5, 0.75, 0.75]]), 4) == pytest.approx([0, 0, 0.25, 0.25], abs=1e-15)
    overlapping = np.array([[0.0, 0.0, 0.5, 0.5], [0.25, 0.25, 0.75, 0.75]])
    assert coverage(overlapping, 1) == pytest.approx([0.25 + 0.25 - 0.0625], abs=1e-15)
    assert coverage(overlapping, 4) == pytest.approx([1.0, 0.25, 0.25, 0.25], abs=1e-15)
    assert coverage(np.array([[0.0, 0.0, 1.0, 1.0]]), 9) == pytest.approx(np.ones(9))
    assert coverage(np.zeros((0, 4)), 9) == pytest.approx(np.zeros(9))


def test_histogram_bins_hold_their_lower_edges_and_the_last_one_both() -> None:
    a_z = np.array([0.0, 0.2, 0.3, 1.0, 0.25])
    s_y = np.array([0.1, 0.2, 1.0, 0.3, 0.9])
    found = caption_histogram(a_z, s_y)
    assert found.tolist() == [[20.0, 0.0, 0.0], [0.0, 20.0, 20.0], [0.0, 0.0, 40.0]]


def test_scores_of_objects_are_those_of_the_greedy_caption_step_by_step() -> None:
    model, evaluator = measured(chunk=4)  # chunks of unequal size
    scores, data = evaluator.evaluate(model, "hard"), evaluator.data
    for row in range(len(data.references)):
        with torch.inference_mode():
            regions = model.regions(data.pictures.rows(torch.tensor([row]), torch.float64))
            state, word, best = model.start(regions.values), torch.tensor([1]), (-1.0, 0.0)
            covered = coverage(data.objects[row].box.numpy(), 4)
            for _ in range(15):
                log_prob, log_alpha, _, state = model.step(regions, state, word, "mode")
                wanted = [7, 9] if data.objects[row].category == (0,) else [8]
                named = float(log_prob[0, wanted].exp().sum())
                if named > best[0]:
                    best = (named, float(log_alpha[0].exp().numpy() @ covered))
                log_prob[0, :2] = -torch.inf
                word = log_prob.argmax(dim=1)
                if int(word) == 2:
                    break
        assert scores.objects["s_y"][row] == pytest.approx(best[0], rel=1e-12)
        assert scores.objects["a_z"][row] == pytest.approx(best[1], rel=1e-12)
    assert scores.objects["area"].tolist() == [0.25] * 9
    assert len({len(caption) for caption in scores.captions}) > 1
    assert scores.objects["picture"].tolist() == list(range(9))


@pytest.mark.parametrize("chunk", [3, 250])
def test_attention_on_phrases_is_its_mean_over_words_and_if_uniform_the_covered_share(chunk: int) -> None:
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.75]]), torch.tensor([[0.25, 0.5, 0.75, 1.0], [0.5, 0.0, 1.0, 0.5]])
    # Of a 2 x 2 grid: all of the upper left cell, half of the lower left; half of both lower cells, all upper right.
    phrases = (Phrase(0, 1, 3, boxes[0]), Phrase(0, 2, 3, boxes[1]), Phrase(4, 0, 2, boxes[1]))
    shares = np.array([[1, 0, 0.5, 0], [0, 1, 0.5, 0.5], [0, 1, 0.5, 0.5]])
    model, evaluator = measured(chunk=chunk, phrases=phrases)
    data, scores, expected = evaluator.data, evaluator.evaluate(model, "soft"), []
    for phrase, share in zip(phrases, shares, strict=True):
        with torch.inference_mode():
            pictures = data.pictures.rows(data.picture[[phrase.caption]], torch.float64)
            place, tokens = torch.tensor([0]), data.tokens[[phrase.caption]]
            output = read(model, model.regions(pictures), place, tokens, "soft")
        alpha = output.log_alpha[0].exp().numpy()
        own = [alpha[t] @ share for t in range(phrase.start, phrase.end)]  # place t predicts word t
        expected.append(sum(own) / len(own))
    assert scores.phrases["a_z"].to_numpy() == pytest.approx(expected, rel=1e-12)
    assert scores.phrases["area"].tolist() == [0.375, 0.5, 0.5]
    with torch.no_grad():
        model.attention.score.weight.zero_()
    uniform = evaluator.evaluate(model, "soft")
    assert uniform.phrases["a_z"].to_numpy() == pytest.approx(uniform.phrases["area"].to_numpy(), rel=1e-14)
    summary = uniform.summary()
    assert summary["phrase_a_z"] == pytest.approx(summary["uniform_phrase_a_z"], rel=1e-14)
    assert "phrase_a_z" not in measured()[1].evaluate(model, "soft").summary()


def test_loss_of_a_split_is_the_mean_over_words_whatever_the_chunks() -> None:
    model, _ = measured()
    assert len({round(measured(chunk=chunk)[1].evaluate(model, "soft").loss, 12) for chunk in (1, 4, 250)}) == 1
    short = CaptionEvaluator(small_task(), "validation", 3, PLAIN).evaluate(model.float(), "soft")
    assert len(short.captions) == 5 and max(map(len, short.captions)) <= 3


def test_cider_of_a_caption_that_equals_one_of_two_references_is_half_its_largest_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pycocoevalcap.cider.cider", reason="the extra `captions` is not installed")
    said, other = [tuple("abcde"), tuple("fghij")], tuple("klmno")
    assert cider(said, [[words, other] for words in said]) == pytest.approx(5.0)  # of 10
    monkeypatch.setitem(sys.modules, "pycocoevalcap.cider.cider", None)
    assert cider(said, [[words] for words in said]) is None
