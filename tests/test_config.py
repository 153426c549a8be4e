"""Parameters as text become checked values; wrong ones are refused in a sentence; a config's hash names its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fcamlib import networks
from fcamlib.config import NETWORKS, Experiment, MosaicsConfig, Phase, RunConfig, all_datasets, experiment
from fcamlib.errors import UserError
from fcamlib.store import load_config

# name -> (what arrives, what it means), for text from a shell, papermill's guesses, and plain values
COERCED: dict[str, list[tuple[Any, Any]]] = {
    "paper_split": [("false", False), ("true", True), ("0", False), ("1", True), ("no", False), (True, True)],
    "momentum": [("0.5", 0.5), ("1e-3", 0.001), (0, 0.0), (".25", 0.25)],
    "num_segments": [("9", 9), (9, 9), (" 9 ", 9), (9.0, 9)],
    "seeds": [
        ("[0,1]", (0, 1)),
        ("0,1", (0, 1)),
        ("[0, 1]", (0, 1)),
        ("7", (7,)),
        (7, (7,)),
        ([2, 0], (2, 0)),
        ("3,", (3,)),
    ],
    "learning_rates": [
        ("1e-3", (0.001,)),
        ("[1e-3, 0.5]", (0.001, 0.5)),
        ("0.1,1e-2", (0.1, 0.01)),
        (0.5, (0.5,)),
        ("", ()),
        ([], ()),
    ],
    "foreground": [
        ("0,1", ("0", "1")),
        ("[0, 1]", ("0", "1")),
        ([0, 1], ("0", "1")),
        ("01, 02", ("01", "02")),
        ("[01, 02]", ("01", "02")),
        ("[no, yes]", ("no", "yes")),
        ("two words,b", ("two words", "b")),
        (("a", "b"), ("a", "b")),
    ],
    "paradigms": [("soft", ("soft",)), ("soft,lvml", ("soft", "lvml")), ("[hard]", ("hard",)), (["soft"], ("soft",))],
    "optimizer": [("adam", "adam")],
    "precision": [("", ""), ("float32", "float32")],
}

NOT_ALLOWED = {
    ("num_segments", "many"): "num_segments='many' is not allowed: give a whole number "
    "(segments of a mosaic, one of them foreground).",
    ("num_segments", "1"): "num_segments='1' is not allowed: give 2 or more "
    "(segments of a mosaic, one of them foreground).",
    ("num_segments", 2.5): "num_segments=2.5 is not allowed: give a whole number "
    "(segments of a mosaic, one of them foreground).",
    ("num_train", "100000001"): "num_train='100000001' is not allowed: give 100000000 or less (training mosaics).",
    ("momentum", "1"): "momentum='1' is not allowed: give less than 1.0 (momentum of SGD).",
    ("momentum", "fast"): "momentum='fast' is not allowed: give a number (momentum of SGD).",
    ("momentum", "nan"): "momentum='nan' is not allowed: give a finite number (momentum of SGD).",
    ("momentum", None): "momentum=None is not allowed: give a number (momentum of SGD).",
    ("paper_split", "perhaps"): "paper_split='perhaps' is not allowed: give true or false "
    "(draw test mosaics from training pictures, as the public scripts do).",
    ("seeds", "[0, -1]"): "seeds=-1 is not allowed: give 0 or more "
    "(seeds; each draws mosaics, initial weights and batch order).",
    ("seeds", "[0, 1"): "seeds='[0, 1' is not allowed: give a list, such as 1,2 "
    "(seeds; each draws mosaics, initial weights and batch order).",
    ("seeds", ""): "seeds='' is not allowed: give at least 1 of them "
    "(seeds; each draws mosaics, initial weights and batch order).",
    ("seeds", "0,x"): "seeds='x' is not allowed: give a whole number "
    "(seeds; each draws mosaics, initial weights and batch order).",
    ("learning_rates", "-0.1"): "learning_rates='-0.1' is not allowed: give more than 0.0 "
    "(learning rates; several are compared on validation).",
    ("learning_rates", "101"): "learning_rates='101' is not allowed: give 100.0 or less "
    "(learning rates; several are compared on validation).",
    ("paradigms", "soft,medium"): "paradigms='medium' is not allowed: choose 'soft', 'hard', 'lvml' or 'hybrid' "
    "(any of soft, hard, lvml, hybrid).",
    (
        "precision",
        "float16",
    ): "precision='float16' is not allowed: choose 'float64', 'float32', 'tfloat32' or 'bfloat16' "
    "(float64, float32, tfloat32 (on a GPU) or bfloat16).",
    ("dataset", 3): "dataset=3 is not allowed: give text "
    "(digits, cifar10, cifar100, or folder:PATH with train/ and test/).",
    ("dataset", "imagenet"): "dataset='imagenet' is unknown: choose digits, cifar10, cifar100, "
    f"{', '.join(all_datasets()[3:-1])} or bags:PATH.",
    ("dataset", "digits:2"): "dataset='digits:2' is unknown: choose digits, cifar10, cifar100 or folder:PATH.",
    ("dataset", "folder:"): "dataset='folder:' names no folder: write folder:PATH.",
    ("dataset", "folder"): "dataset='folder' names no folder: write folder:PATH.",
    ("dataset", "folder:x"): "foreground is empty: dataset='folder:x' needs the classes that decide the label, "
    "such as foreground=cat,dog.",
    ("foreground", "3"): "foreground=3 is one class: name at least two to tell apart.",
    ("foreground", "3,4,3"): "foreground=3,4,3 names a value twice: give each once.",
    ("background", "4,1"): "background names '1', which is foreground too: a class can be only one of them.",
    ("focus_network", "resnet"): "focus_network='resnet' is unknown: "
    "choose one of cifar10, cifar100, digits, mlp, linear, or mlp:DEPTHxWIDTH or cnn:DEPTHxWIDTH, such as mlp:2x64.",
    ("classification_network", "vgg"): "classification_network='vgg' is unknown: "
    "choose one of cifar10, cifar100, digits, mlp, linear, or mlp:DEPTHxWIDTH or cnn:DEPTHxWIDTH, such as mlp:2x64.",
    ("image_size", "3"): "image_size=3 is too small: give at least 4 pixels.",
    ("switch_epoch", "20"): "switch_epoch=20 does not lie inside epochs=20: "
    "the hybrid needs at least one epoch of soft and one of hard attention.",
    ("epochs", "1"): "switch_epoch=0 does not lie inside epochs=1: "
    "the hybrid needs at least one epoch of soft and one of hard attention.",
}


@pytest.mark.parametrize(
    ("name", "given", "meant"), [(name, *case) for name, cases in COERCED.items() for case in cases], ids=repr
)
def test_text_and_values_are_understood(name: str, given: Any, meant: Any) -> None:
    value = getattr(experiment({name: given}), name)
    assert value == meant and type(value) is type(meant)
    assert all(type(a) is type(b) for a, b in zip(value, meant, strict=True)) if isinstance(meant, tuple) else True


@pytest.mark.parametrize(("name", "given"), NOT_ALLOWED, ids=repr)
def test_a_wrong_value_is_one_exact_sentence(name: str, given: Any) -> None:
    with pytest.raises(UserError) as caught:
        experiment({name: given})
    assert str(caught.value) == NOT_ALLOWED[name, given]


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    known = ", ".join(Experiment.model_fields)
    for name, hint in (("num_segmets", "did you mean 'num_segments'? "), ("zzz", "")):
        with pytest.raises(UserError) as caught:
            experiment({name: 1})
        assert str(caught.value) == f"'{name}' is not a parameter: {hint}known are {known}."


def test_a_long_value_is_shortened_and_a_field_has_the_name_that_the_user_knows() -> None:
    with pytest.raises(UserError) as caught:
        experiment({"seeds": "x" * 500}, called={"seeds": "seed"})
    assert str(caught.value).startswith("seed='xxx")
    assert len(str(caught.value)) < 200


def mosaics(config: RunConfig) -> MosaicsConfig:
    assert isinstance(config.data, MosaicsConfig)
    return config.data


def test_defaults_follow_the_source() -> None:
    configs = [experiment({"dataset": name}).configs()[0] for name in ("digits", "cifar10", "cifar100")]
    (digits, cifar10, cifar100), (small, ten, hundred) = configs, map(mosaics, configs)
    assert small.foreground == ("0", "1", "2") and digits.training.precision == "float64"
    assert (small.num_train, small.num_validation, small.num_test) == (2000, 500, 2000)
    assert (small.image_size, digits.training.batch_size, digits.model.focus) == (8, 64, "digits")
    assert ten.foreground == ("airplane", "automobile", "bird") and cifar10.training.precision == "float32"
    assert (ten.num_train, ten.image_size, cifar10.training.batch_size) == (10_000, 32, 256)
    assert (cifar10.model.focus, cifar10.model.classifier) == ("cifar10", "cifar10")
    assert len(hundred.foreground) == 50 and "baby" in hundred.foreground
    assert (cifar100.model.focus, cifar100.model.classifier) == ("cifar100", "cifar100")
    for data in (small, ten, hundred):
        assert data.background == () and data.num_segments == 5 and not data.paper_split


def test_the_grid_is_every_paradigm_with_every_seed_and_the_hybrid_has_two_phases() -> None:
    configs = experiment({"seeds": "3,1", "epochs": 5, "hard_learning_rates": 0.01}).configs()
    names = ("soft", "hard", "lvml", "hybrid")
    assert [(c.paradigm, c.seed) for c in configs] == [(name, seed) for name in names for seed in (3, 1)]
    soft, hard = configs[-1].phases
    assert (soft.paradigm, soft.epochs, soft.learning_rates) == ("soft", 2, (0.05,))
    assert (hard.paradigm, hard.epochs, hard.learning_rates) == ("hard", 3, (0.01,))
    assert [c.aggregation for c in configs[::2]] == ["soft", "hard", "lvml", "hard"]
    searched = experiment({"learning_rates": "0.1,0.2", "search_epochs": 4, "epochs": 6}).configs()[0].phases[0]
    assert searched.search_epochs == 4 and configs[0].phases[0].search_epochs == 0


def test_configs_cannot_be_changed_or_extended() -> None:
    config = experiment({}).configs()[0]
    for model, field in ((config, "seed"), (config.data, "num_train"), (config.phases[0], "epochs")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(model, field, 5)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        RunConfig.model_validate({**config.model_dump(), "note": "mine"})
    assert {config: "hashable"}[RunConfig.model_validate_json(config.model_dump_json())] == "hashable"


def test_names_of_runs_stay_as_they_are() -> None:
    """Recorded runs carry these hashes: a change of fields or defaults would orphan them."""
    assert [config.name for config in experiment({}).configs()] == [
        "digits-m5-n2000-soft-s0-29031f07",
        "digits-m5-n2000-hard-s0-7e0c33cf",
        "digits-m5-n2000-lvml-s0-4b1f30a6",
        "digits-m5-n2000-hybrid-s0-05754430",
    ]
    (config,) = experiment({"dataset": "cifar10", "paradigms": "hybrid"}).configs()
    assert config.name == "cifar10-m5-n10000-hybrid-s0-578b2c56"


def test_every_field_counts_in_the_hash() -> None:
    config = experiment({"paradigms": "hybrid"}).configs()[0]
    changes: dict[str, Any] = {
        "dataset": "cifar10",
        "foreground": "3,4",
        "background": "5,6",
        "paper_split": True,
        "precision": "float32",
        "optimizer": "adam",
        "keep": "best",
        "focus_network": "mlp",
        "classification_network": "mlp",
        "memory_layout": "contiguous",
        "device": "cpu",
        "learning_rates": 0.2,
        "hard_learning_rates": 0.2,
        "momentum": 0.8,
        "seeds": 1,
    }
    counts = ("num_segments", "num_train", "num_validation", "num_test", "image_size", "epochs", "switch_epoch")
    changes |= dict.fromkeys((*counts, "batch_size", "threads", "evaluate_every"), 7)
    digests = {
        experiment({"paradigms": "hybrid", name: value}).configs()[0].digest() for name, value in changes.items()
    }
    assert len(digests | {config.digest()}) == len(changes) + 1
    left_out = set(Experiment.model_fields) - set(changes)
    assert left_out == {"paradigms", "search_epochs"}, "a new field needs a line here"


def picture_folder(root: Path, *, extra: bytes = b"") -> str:
    for split in ("train", "test"):
        for name in ("a", "b"):
            (root / split / name).mkdir(parents=True)
            (root / split / name / "1.png").write_bytes(b"picture")
    (root / "train" / "a" / "2.png").write_bytes(b"picture" + extra)
    return f"folder:{root}"


def folder_config(source: str) -> RunConfig:
    return experiment({"dataset": source, "foreground": "a,b", "paradigms": "soft"}).configs()[0]


def test_a_folder_counts_by_name_and_content_not_by_where_it_lies(tmp_path: Path) -> None:
    here, there = picture_folder(tmp_path / "x" / "my pics"), picture_folder(tmp_path / "y" / "my pics")
    first, second = folder_config(here), folder_config(there)
    assert first.data.source != second.data.source and first.name == second.name
    assert first.name.startswith("my-pics-m5-n10000-soft-s0-")
    grown = folder_config(picture_folder(tmp_path / "z" / "my pics", extra=b"!"))
    renamed = folder_config(picture_folder(tmp_path / "other"))
    (tmp_path / "y" / "my pics" / "train" / "a" / "1.png").rename(tmp_path / "y" / "my pics" / "train" / "a" / "3.png")
    assert len({first.digest(), grown.digest(), renamed.digest(), folder_config(there).digest()}) == 4


def test_a_folder_is_found_in_the_data_folder_and_through_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = picture_folder(tmp_path / "data" / "pics")
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    assert folder_config("folder:pics").digest() == folder_config(source).digest()
    linked = tmp_path / "linked" / "pics"
    linked.mkdir(parents=True)
    for split in ("train", "test"):
        (linked / split).symlink_to(tmp_path / "data" / "pics" / split, target_is_directory=True)
    assert folder_config(f"folder:{linked}").digest() == folder_config(source).digest()
    (linked / "gone.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(
        UserError, match=r"^the file '.*gone.png' cannot be read \(No such file or directory\): mend or"
    ):
        folder_config(f"folder:{linked}")
    with pytest.raises(
        UserError, match=r"there is no folder '.*none' nor '.*data/none'; give the path .* set FCAM_DATA"
    ):
        folder_config("folder:none")


def test_long_and_odd_folder_names_make_short_plain_file_names(tmp_path: Path) -> None:
    name = folder_config(picture_folder(tmp_path / ("Ünï cödé." * 18))).name
    assert len(name.encode()) < 200 and not set(name) & set("/ .\\")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"num_segments": 0}}, "data.num_segments=0 is not allowed: give 1 or more (segments of a mosaic, "),
        ({"data": {"colour": 1}}, "'data.colour' is not a parameter: known are source, fingerprint, foreground, "),
        (
            {"seeds": 1},
            "'seeds' is not a parameter: did you mean 'seed'? known are data, model, phases, training, seed.",
        ),
        ({"phases": []}, "phases=[] is not allowed: give at least 1 of them."),
    ],
    ids=repr,
)
def test_a_wrong_config_file_is_one_sentence(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    content = experiment({}).configs()[0].model_dump(mode="json")
    for name, value in change.items():
        content[name] = {**content[name], **value} if isinstance(value, dict) else value
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"the config '{path}' is not valid: {sentence}")


def test_a_config_file_that_is_no_config_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    complete = experiment({}).configs()[0].model_dump(mode="json")
    complete["phases"][0].pop("epochs")
    for content, sentence in {
        "{": "is not valid: it is not JSON (EOF while parsing",
        "[1]": "is not valid: names with their values are needed.",
        "{}": "is not valid: data is missing: give it.",
        json.dumps(complete): "is not valid: phases.epochs is missing: give passes over the training instances.",
    }.items():
        path.write_text(content)
        with pytest.raises(UserError) as caught:
            load_config(path)
        assert sentence in str(caught.value) and str(caught.value).endswith(".")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\): give a config.json"):
        load_config(tmp_path)


def test_the_networks_known_without_torch_are_those_that_exist() -> None:
    assert set(NETWORKS) == {*networks.FOCUS_NETWORKS, *networks.CLASSIFICATION_NETWORKS}


def test_schedules_have_readable_names() -> None:
    def named(*paradigms: str) -> str:
        phases = tuple(Phase(paradigm=p, epochs=1, learning_rates=(0.1,)) for p in paradigms)
        config = experiment({}).configs()[0]
        return RunConfig(data=config.data, model=config.model, phases=phases, seed=0).paradigm

    assert [named("soft"), named("lvml", "lvml"), named("soft", "hard"), named("hard", "soft")] == [
        "soft",
        "lvml",
        "hybrid",
        "hard+soft",
    ]
    with pytest.raises(ValidationError):
        MosaicsConfig.model_validate({"source": "digits"})
