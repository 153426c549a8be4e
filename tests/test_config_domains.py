"""One set of parameters for every domain: the data source picks the class, and what a domain lacks is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fcamlib import store
from fcamlib.config import (
    EXPERIMENTS,
    BagsConfig,
    CrossValidationConfig,
    Experiment,
    ModelConfig,
    MosaicsConfig,
    RunConfig,
    SeriesConfig,
    TextConfig,
    all_datasets,
    experiment,
    experiment_class,
    portable_source,
    short_source,
    source_fingerprint,
    source_path,
    stored_class,
)
from fcamlib.errors import DataError, UserError

DATA = {"digits": MosaicsConfig, "keywords": TextConfig, "motifs": SeriesConfig, "clouds": BagsConfig}


@pytest.mark.parametrize("dataset", DATA)
def test_the_source_picks_the_domain_and_its_config_comes_back_from_json(dataset: str) -> None:
    config = experiment({"dataset": dataset, "paradigms": "hybrid"}).configs()[0]
    assert type(config.data) is DATA[dataset]
    again = RunConfig.model_validate_json(config.model_dump_json())
    assert type(again.data) is DATA[dataset] and again == config and again.digest() == config.digest()
    assert [phase.paradigm for phase in config.phases] == ["soft", "hard"]
    assert stored_class(config.model_dump_json().encode()) is RunConfig


def test_every_dataset_is_listed_once_and_belongs_to_one_domain() -> None:
    names = all_datasets()
    assert len(set(names)) == len(names) and {"digits", "folder:PATH", "motifs", "bags:PATH"} <= set(names)
    kinds = [kind for domain in EXPERIMENTS for kind in domain.defaults]
    assert len(set(kinds)) == len(kinds)
    assert experiment_class() is Experiment and experiment_class(3) is Experiment


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"noise": 1},
            "noise=1 does not belong to dataset='digits': leave it out, or choose a dataset that has it (motifs",
        ),
        (
            {"dataset": "motifs", "image_size": 8},
            "image_size=8 does not belong to dataset='motifs': leave it out, or choose",
        ),
        ({"dataset": "clouds", "paper_split": True}, "paper_split=True does not belong to dataset='clouds'"),
        ({"dataset": "motifs", "num_chanels": 3}, "'num_chanels' is not a parameter: did you mean 'num_channels'?"),
        ({"dataset": "series"}, "dataset='series' names no file: write series:PATH."),
        ({"dataset": "bags:"}, "dataset='bags:' names no file: write bags:PATH."),
        (
            {"dataset": "motifs", "focus_network": "cifar10"},
            "focus_network='cifar10' is unknown: choose one of conv1d, mlp",
        ),
        (
            {"dataset": "motifs", "num_segments": "few"},
            "num_segments='few' is not allowed: give a whole number (windows of a",
        ),
        ({"dataset": "clouds", "seeds": "1,1"}, "seeds=1,1 names a value twice: give each once."),
    ],
    ids=repr,
)
def test_what_a_domain_does_not_have_is_one_sentence(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        experiment(parameters)
    assert str(caught.value).startswith(said) and str(caught.value).endswith(".")


def test_faults_in_the_config_file_of_another_domain_name_the_field(tmp_path: Path) -> None:
    content = experiment({"dataset": "motifs"}).configs()[0].model_dump(mode="json")
    for change, said in {
        ("window_length", "x"): "data.window_length='x' is not allowed: give a whole number (samples of a window",
        ("colour", 1): "'data.colour' is not a parameter: known are source, fingerprint, window_length, num_segments,",
        ("num_classes", 1): "num_classes=1 is too small for motifs: give 2 or more.",
    }.items():
        path = tmp_path / "config.json"
        path.write_text(json.dumps(content | {"data": content["data"] | {change[0]: change[1]}}))
        with pytest.raises(UserError) as caught:
            store.load_config(path)
        assert f"is not valid: {said}" in str(caught.value)


def test_a_model_without_an_encoder_is_hashed_as_before_there_were_any() -> None:
    assert ModelConfig(focus="mlp", classifier="mlp").model_dump() == {"focus": "mlp", "classifier": "mlp"}
    assert ModelConfig(focus="mlp", classifier="mlp", encoder="mlp").model_dump()["encoder"] == "mlp"
    with pytest.raises(ValidationError):
        ModelConfig.model_validate({"focus": "mlp", "classifier": "mlp", "decoder": ""})


def test_a_users_file_counts_by_its_name_and_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, written in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "My set.npz").write_bytes(written)
    first, second, third = (f"bags:{tmp_path / folder / 'My set.npz'}" for folder in "abc")
    configs = [experiment({"dataset": source, "paradigms": "soft"}).configs()[0] for source in (first, second, third)]
    assert configs[0].name == configs[1].name and configs[0].digest() != configs[2].digest()
    assert (
        configs[0].name.startswith("my-set-r0-f0-soft-s0-") and configs[0].portable().data.source == "bags:My set.npz"
    )
    assert portable_source(first) == "bags:My set.npz" and short_source("folder:x/my.npz") == "my-npz"
    monkeypatch.setenv("FCAM_DATA", str(tmp_path / "a"))
    assert source_path("bags:My set.npz") == tmp_path / "a" / "My set.npz"
    assert source_fingerprint("bags:My set.npz") == source_fingerprint(second) != source_fingerprint(third)
    with pytest.raises(
        DataError, match=r"there is no file '.*none.npz' nor '.*a/none.npz'; give the path of an .npz file"
    ):
        source_path("bags:none.npz")


def test_configs_of_other_kinds_are_told_apart_and_unknown_ones_are_damage() -> None:
    other = CrossValidationConfig(
        source="bags:x.npz",
        fingerprint="1",
        methods=("soft",),
        repeats=1,
        folds=2,
        epochs=2,
        learning_rates=(0.1,),
        batch_size=1,
    )
    assert stored_class(other.model_dump_json().encode()) is CrossValidationConfig
    assert stored_class(b'{"kind": "of another version"}') is None and stored_class(b"{") is None
    assert stored_class(b"[1]") is RunConfig, "what is no object is refused when it is read"
    assert other.name == f"x-cv1x2-{other.digest()[:8]}" and other.portable() == other
