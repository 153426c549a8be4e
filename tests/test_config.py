"""Parameters as text become checked values; wrong ones are refused in a sentence; a config's hash names its content."""

# ruff: noqa: E501  (a case a line in the table of sentences)
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from toys import RINGS

from fcamlib.cli import config_file
from fcamlib.config import (
    SOURCES,
    Bags,
    CaptionGrid,
    CrossValidation,
    FlowParameters,
    Folds,
    Grid,
    Model,
    Mosaics,
    Parameters,
    Phase,
    Run,
    Series,
    StudyGrid,
    SweepGrid,
    Text,
    grids,
    portable_source,
    read,
    short_source,
    source_path,
)
from fcamlib.errors import UserError

# name -> (what arrives, what it means), for text from a shell, papermill's guesses, and plain values
COERCED: dict[str, list[tuple[Any, Any]]] = {
    "paper_split": [("false", False), ("true", True), ("0", False), ("1", True), ("no", False), (True, True)],
    "num_segments": [("9", 9), (9, 9), (" 9 ", 9), (9.0, 9)],
    "num_train": [("", 2_000), ("30", 30)],
    "seeds": [("[0,1]", (0, 1)), ("0,1", (0, 1)), ("7", (7,)), (7, (7,)), ([2, 0], (2, 0)), ("3,", (3,))],
    "learning_rates": [
        ("1e-3", (0.001,)), ("[1e-3, 0.5]", (0.001, 0.5)), (0.5, (0.5,)), ("", (0.05,)), ([], (0.05,)),
    ],
    "foreground": [
        ("0,1", ("0", "1")), ("[0, 1]", ("0", "1")), ([0, 1], ("0", "1")), ("[01, 02]", ("01", "02")),
        ("[no, yes]", ("no", "yes")), ("two words,b", ("two words", "b")), (("a", "b"), ("a", "b")),
    ],
    "paradigms": [("soft,lvml", ("soft", "lvml")), ("[hard]", ("hard",)), (["logit_mixture"], ("logit_mixture",))],
}  # fmt: skip

SEED = "(each draws instances, initial weights and batch order)."
NETWORK = "choose one of cifar10, cifar100, digits, mlp, linear, mlp:DEPTHxWIDTH, cnn:DEPTHxWIDTH, such as mlp:2x64."
LIST = "is not allowed: give a list, such as 1,2"
TWICE = "contains a value twice: give each once."
SWITCH = "leaves a phase without an epoch: give each at least one."
REFUSED: list[tuple[type[Parameters], dict[str, Any], str]] = [
    (Grid, {"num_segments": "1"}, "num_segments='1' is not allowed: give 2 or more (segments of a mosaic, "),
    (Grid, {"batch_size": "9" * 5_000}, f"batch_size='{'9' * 56}... is not allowed: give a whole number (instances per "),
    (Grid, {"batch_size": 10**5_000}, "batch_size=a number of thousands of digits is not allowed: give "),
    (Grid, {"paper_split": "perhaps"}, "paper_split='perhaps' is not allowed: give true or false (draw test mosaics "),
    (Grid, {"seeds": "[0, -1]"}, f"seeds='-1' is not allowed: give 0 or more {SEED}"),
    (Grid, {"seeds": "[" * 3_000}, f"seeds='{'[' * 56}... {LIST} {SEED}"),
    (Grid, {"seeds": "1,1"}, f"seeds=1,1 {TWICE}"),
    (Grid, {"paradigms": "soft,medium"}, "paradigms='medium' is not allowed: choose soft, hard, lvml, logit_mixture, hybrid, soft+soft or hard+hard."),
    (Grid, {"dataset": "imagenet"}, "dataset='imagenet' is unknown: choose digits, cifar10, cifar100, keywords, hatexplain, motifs, clouds, folder:PATH, hatexplain:PATH, text:PATH, series:PATH or bags:PATH."),
    (Grid, {"dataset": "folder:x"}, "foreground is empty: dataset='folder:x' needs the classes that decide the label, such as foreground=cat,dog."),
    (Grid, {"dataset": "folder:\udcff", "foreground": "a,b"}, "dataset='folder:\\udcff' is not allowed: give text that the locale can encode, such as under LC_ALL=C.UTF-8 (name of the data source, or kind:PATH)."),
    (Grid, {"foreground": "a," + "b" * 1_001}, f"foreground='{'b' * 56}... is not allowed: give at most 1000 characters (classes that "),
    (Grid, {"foreground": "3"}, "foreground=3 is one class: name at least two."),
    (Grid, {"background": "4,1"}, "background names '1', which is also foreground: choose one of them."),
    (Grid, {"focus_network": "resnet"}, f"focus_network='resnet' is unknown: {NETWORK}"),
    (Grid, {"switch_epoch": "20"}, f"switch_epoch=20 with epochs=20 {SWITCH}"),
    (Grid, {"num_segmets": 1}, "'num_segmets' is not a parameter: did you mean 'num_segments'? known are dataset, foreground, background, "),
    (Grid, {"encoder": "mlp"}, "encoder does not belong to dataset='digits': leave it out."),
    (Grid, {"dataset": "keywords", "encoder": "mlp"}, "encoder='mlp' is unknown: choose embedding or transformer."),
    (SweepGrid, {"classification_network": "cnn:1x2"}, "classification_network='cnn:1x2' is unknown: choose one of cifar10, "),
    (CaptionGrid, {"image_size": 50}, "image_size=50 is not allowed: give a multiple of 8 (side of a picture in pixels)."),
    (FlowParameters, {"num_segments": "20,20", "seeds": "1,1"}, f"seeds=1,1 {TWICE}"),
    (Folds, {"methods": "soft"}, "dataset is missing: add it (bags:PATH, an .npz file of bags)."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "meant"), [(name, *case) for name, cases in COERCED.items() for case in cases], ids=repr
)
def test_text_and_values_are_understood(name: str, given: Any, meant: Any) -> None:
    found = Grid.of({name: given})
    value = getattr(found if name in Grid.model_fields else found.task, name)
    assert value == meant and type(value) is type(meant)
    assert all(type(a) is type(b) for a, b in zip(value, meant, strict=True)) if isinstance(meant, tuple) else True


@pytest.mark.parametrize(("kind", "given", "said"), REFUSED, ids=[said[:60] for *_, said in REFUSED])
def test_a_wrong_value_is_one_short_sentence(kind: type[Parameters], given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        kind.of(given)
    sentence = str(caught.value)
    assert sentence.startswith(said) and sentence.endswith(".") and len(sentence) < 800
    sentence.encode()  # can be printed


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Grid, {"paradigms": "soft", "hard_learning_rates": 0.2}, "hard_learning_rates=0.2 has no effect: it belongs to"),
        (Grid, {"paradigms": "lvml", "switch_epoch": 3}, "switch_epoch=3 has no effect: it belongs to the hybrid."),
        (Grid, {"search_epochs": 3}, "search_epochs=3 has no effect: there is only one learning rate."),
        (Grid, {"optimizer": "adam", "momentum": 0.5}, "momentum=0.5 has no effect: it belongs to SGD."),
        (SweepGrid, {"paradigms": "soft", "hard_learning_rate": 0.2}, "hard_learning_rate=0.2 has no effect: hard is not"),
        (StudyGrid, {"paradigms": "soft", "soft_shares": 0.3}, "soft_shares=0.3 has no effect: it belongs to the hybrid."),
        (StudyGrid, {"each_epochs": "4,8", "epochs": 4}, "epochs=4 has no effect: each_epochs takes its place"),
        (StudyGrid, {"each_learning_rate": 0.1, "learning_rates": 0.2}, "learning_rates=0.2 has no effect: each_learning_rate"),
        (CaptionGrid, {"paradigms": "soft", "entropy_weight": 0.1}, "entropy_weight=0.1 has no effect: hard is not trained."),
        (Grid, {"momentum": 0.5, "switch_epoch": 3}, ""),
        (Grid, {"paradigms": "soft+soft", "switch_epoch": 3, "hard_learning_rates": 0.2}, ""),
    ],
)  # fmt: skip
def test_what_cannot_have_an_effect_is_said(
    kind: type[Parameters], given: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind.of(given)
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert messages[0].startswith(said) if said else messages == []


def test_the_grid_is_every_paradigm_with_every_seed_and_the_hybrid_has_two_phases() -> None:
    configs = Grid.of({"seeds": "3,1", "epochs": 5, "hard_learning_rates": 0.01}).configs()
    names = ("soft", "hard", "lvml", "hybrid")
    assert [(c.paradigm, c.seed) for c in configs] == [(name, seed) for name in names for seed in (3, 1)]
    soft, hard = configs[-1].phases
    assert (soft.paradigm, soft.epochs, soft.learning_rates) == ("soft", 2, (0.05,))
    assert (hard.paradigm, hard.epochs, hard.learning_rates) == ("hard", 3, (0.01,))
    assert [c.aggregation for c in configs[::2]] == ["soft", "hard", "lvml", "hard"]
    searched = Grid.of({"learning_rates": "0.1,0.2", "search_epochs": 4, "epochs": 6}).configs()[0].phases[0]
    assert searched.search_epochs == 4 and configs[0].phases[0].search_epochs == 0


def test_controls_of_the_hybrid_restart_at_its_switch_at_its_rates_and_keep_their_paradigm() -> None:
    parts = grids(Path(__file__).resolve().parents[1] / "profiles" / "evidence.yaml")
    (evidence,) = (part for part in parts if "soft+soft" in part.get("paradigms", ""))
    evidence |= {"paradigms": "soft,hard,hybrid,soft+soft,hard+hard", "learning_rates": 0.05}
    assert len(Grid.of(evidence).configs()) == 5 * 5, "five paradigms, five seeds"
    configs = Grid.of(evidence | {"switch_epoch": 3, "hard_learning_rates": 0.01, "seeds": 0}).configs()
    names = [c.name.rsplit("-", 1)[0] for c in configs]
    assert names == [f"cifar10-m5-n10000-{name}-s0" for name in ("soft", "hard", "hybrid", "soft+soft", "hard+hard")]
    assert [[(p.paradigm, p.epochs, *p.learning_rates) for p in config.phases] for config in configs[2:]] == [
        [(first, 3, 0.05), (second, 47, 0.01)] for first, second in (("soft", "hard"), ("soft",) * 2, ("hard",) * 2)
    ]
    assert [(c.paradigm, c.aggregation) for c in configs[3:]] == [("soft+soft", "soft"), ("hard+hard", "hard")]
    turned = tuple(Phase(paradigm=name, epochs=1, learning_rates=(0.1,)) for name in ("hard", "soft"))
    assert configs[0].model_copy(update={"phases": turned}).paradigm == "hard+soft"


NAMES: dict[str, list[str]] = {  # recorded runs carry these hashes: a change of fields or defaults would orphan them
    "digits": ["m5-n2000-soft-s0-29031f07", "m5-n2000-hard-s0-7e0c33cf", "m5-n2000-lvml-s0-4b1f30a6",
               "m5-n2000-hybrid-s0-05754430"],
    "cifar10": ["m5-n10000-hybrid-s0-578b2c56"],
    "cifar100": ["m5-n10000-hybrid-s0-a34457d2"],
    "keywords": ["n500-soft-s0-c6d1ae7d", "n500-hybrid-s0-e2e507e1"],
    "motifs": ["m5-n300-soft-s0-80f72437", "m5-n300-lvml-s0-7c51f384"],
    "clouds": ["m12-n400-soft-s0-b4dbc715", "m12-n400-hybrid-s0-54bdd867"],
}  # fmt: skip


@pytest.mark.parametrize("dataset", NAMES)
def test_names_of_results_stay_as_they_are(dataset: str) -> None:
    names = {config.name.removeprefix(f"{dataset}-") for config in Grid.of({"dataset": dataset}).configs()}
    assert set(NAMES[dataset]) <= names


def test_every_parameter_counts_in_the_hash() -> None:
    changes: dict[str, Any] = {
        "dataset": "cifar10", "foreground": "3,4", "background": "5,6", "paper_split": True, "precision": "float32",
        "optimizer": "adam", "keep": "best", "focus_network": "mlp", "classification_network": "mlp", "device": "cpu",
        "memory_layout": "contiguous", "learning_rates": 0.2, "hard_learning_rates": 0.2, "momentum": 0.8, "seeds": 1,
    }  # fmt: skip
    counts = ("num_segments", "num_train", "num_validation", "num_test", "image_size", "epochs", "switch_epoch")
    changes |= dict.fromkeys((*counts, "batch_size", "threads", "evaluate_every"), 7)
    digests = {Grid.of({"paradigms": "hybrid", n: v}).configs()[0].digest for n, v in changes.items()}
    assert len(digests | {Grid.of({"paradigms": "hybrid"}).configs()[0].digest}) == len(changes) + 1
    assert Grid.known().keys() - changes.keys() == {"paradigms", "search_epochs"}, "a new parameter needs a value here"


def test_configs_come_back_from_json() -> None:
    for dataset, task in (("digits", Mosaics), ("keywords", Text), ("motifs", Series), ("clouds", Bags)):
        config = Grid.of({"dataset": dataset, "paradigms": "hybrid"}).configs()[0]
        again = read(config.model_dump_json().encode())
        assert type(config.data) is task and again == config and {config: "hashable"}[again] == "hashable"
    assert Model(focus="mlp", classifier="mlp").model_dump() == {"focus": "mlp", "classifier": "mlp"}, "a hash changed"
    values = {"methods": ["soft"], "repeats": 1, "folds": 2, "epochs": 2, "learning_rates": [0.1], "batch_size": 1}
    other = CrossValidation.model_validate({"source": "bags:x.npz", "fingerprint": "1", **values})
    assert read(other.model_dump_json().encode()) == other == other.portable
    assert other.name == f"x-cv1x2-{other.digest[:8]}"
    other_kind = (b'{"kind": "of another version"}', "kind='of another version' is not allowed: choose study, ")
    for content, said in (other_kind, (b'{"kind": []}', r"kind=\[\] is not allowed"), (b"{", "it is not JSON")):
        with pytest.raises(UserError, match=said):
            read(content)


def users_data(root: Path, kind: str, content: bytes = b"picture") -> str:
    """A folder of pictures or a file of bags in `root`, as a data source."""
    for name in ("train/a/1.png", "train/a/2.png", "train/b/1.png", "test/a/1.png", "test/b/1.png"):
        place = root / "My set" / name if kind == "folder" else root / "My set.npz"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if name == "train/a/2.png" or kind == "bags" else b"picture")
    return f"{kind}:{root / ('My set' if kind == 'folder' else 'My set.npz')}"


def config_on(source: str) -> Run:
    given = {"foreground": "a,b"} if source.startswith("folder") else {}
    return Grid.of({"dataset": source, "paradigms": "soft", **given}).configs()[0]


@pytest.mark.parametrize(
    ("kind", "name", "run"),
    [("folder", "My set", "my-set-m5-n10000-soft"), ("bags", "My set.npz", "my-set-r0-f0-soft")],
)
def test_a_users_data_count_by_name_and_content_not_by_where_they_lie(
    kind: str, name: str, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = config_on(users_data(tmp_path / "x", kind)), config_on(users_data(tmp_path / "y", kind))
    assert here.data.source != there.data.source and here.name == there.name and here.name.startswith(run)
    assert here.portable.data.source == portable_source(here.data.source) == f"{kind}:{name}"
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "x"))
    assert source_path(f"{kind}:{name}") == tmp_path / "x" / name
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / name).symlink_to(tmp_path / "x" / name)
    assert config_on(f"{kind}:{name}").digest == here.digest == config_on(f"{kind}:{tmp_path / 'linked' / name}").digest
    (tmp_path / "y" / name).rename(tmp_path / "y" / f"other{name}")
    others = (f"{kind}:{tmp_path / 'y' / f'other{name}'}", users_data(tmp_path / "z", kind, b"changed"))
    assert len({here.digest, *(config_on(source).digest for source in others)}) == 3
    with pytest.raises(UserError, match=r"there is no .* '.*none' nor '.*x/none'; give the path .* set FCAM_DATA"):
        config_on(f"{kind}:none")


def test_names_of_results_are_short_and_readable(tmp_path: Path) -> None:
    users_data(tmp_path, "folder")
    name = config_on(f"folder:{(tmp_path / 'My set').rename(tmp_path / ('Ünï cödé.' * 18))}").name
    assert len(name.encode()) < 200 and not set(name) & set("/ .\\")
    assert short_source("folder:x/my.npz") == "my-npz" and short_source("bags:x/my.npz") == "my"
    assert portable_source("coco:.") == f"coco:{Path.cwd().name}" and portable_source("text:a/b/..") == "text:a"
    assert portable_source("folder:a\udcff") == "folder:a?", "a record is UTF-8"


@pytest.mark.parametrize(
    ("dataset", "change", "sentence"),
    [
        ("digits", {"data": {"num_segments": 0}}, "data.num_segments=0 is not allowed: give 2 or more (segments of a "),
        ("digits", {"data": {"source": "keywords"}}, "'data.foreground' is not a parameter: known are source, "),
        ("digits", {"data": {"source": "mine"}}, "data.source='mine' is unknown: choose one of orthogonal, digits, "),
        ("digits", {"seeds": 1}, "'seeds' is not a parameter: did you mean 'seed'? known are data, model, phases, "),
        ("digits", {"phases": [{"paradigm": "soft", "learning_rates": [1]}]}, "phases.epochs is missing: add it."),
        ("motifs", {"data": {"num_classes": 1}}, "num_classes=1 is too small for motifs: give 2 or more."),
        ("digits", "{", "it is not JSON (EOF while parsing"),
        ("digits", "{}", "data is missing: add it."),
    ],
    ids=repr,
)
def test_a_wrong_config_file_is_one_sentence(dataset: str, change: Any, sentence: str, tmp_path: Path) -> None:
    content = Grid.of({"dataset": dataset}).configs()[0].model_dump(mode="json")
    for name, value in change.items() if isinstance(change, dict) else ():
        content[name] = {**content[name], **value} if isinstance(value, dict) else value
    path = tmp_path / "config.json"
    path.write_text(change if isinstance(change, str) else json.dumps(content))
    with pytest.raises(UserError) as caught:
        config_file(path)
    assert str(caught.value).startswith(f"the config '{path}' is not valid: {sentence}")
    assert str(caught.value).endswith(".")


def test_a_source_from_outside_has_parameters_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rings.py").write_text(RINGS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FCAM_PLUGINS", "rings")
    try:
        (config,) = Grid.of({"dataset": "rings", "radius": "2", "paradigms": "soft"}).configs()
        assert (config.data.radius, config.phases[0].epochs) == (2.0, 3)
        assert config.name.startswith("rings-n30-soft-s0-") and read(config.model_dump_json().encode()) == config
        with pytest.raises(UserError, match=r"^radius='-1' is not allowed: give more than 0 \(radius of a ring\)"):
            Grid.of({"dataset": "rings", "radius": "-1"})
        with pytest.raises(UserError, match=r"^noise does not belong to dataset='rings'"):
            Grid.of({"dataset": "rings", "noise": 1})
    finally:
        SOURCES.pop("rings", None)
    monkeypatch.setenv("FCAM_PLUGINS", "none_such")
    with pytest.raises(UserError, match=r"^FCAM_PLUGINS names 'none_such', which cannot be imported \(ModuleNotFoundE"):
        Grid.of({})


def test_a_zero_is_a_value_on_the_command_line_and_the_default_in_a_notebook() -> None:
    given = {"dataset": "motifs", "noise": 0, "num_train": "0", "momentum": 0}
    with pytest.raises(UserError, match="num_train=0 is too small for motifs: give 1 or more"):
        Grid.of(given)
    assert Grid.of({"dataset": "motifs", "noise": "0"}).task.model_dump()["noise"] == 0.0
    assert Grid.without_zeros(given) == {"dataset": "motifs", "momentum": 0}
    assert CaptionGrid.of({"encoder_learning_rate": "0"}).encoder_learning_rate == 0.0
    assert Grid.without_zeros({"dataset": "series:x", "noise": 0.0}) == {"dataset": "series:x"}
