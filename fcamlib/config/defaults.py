"""The data sources of this package, and the default parameters of a grid on each.

The CIFAR networks are the paper's; sizes and epochs suit a laptop, and the paper's own are in
notebooks/profiles/paper.yaml.
"""

from __future__ import annotations

from typing import Any

from fcamlib.config.sources import Source, register_source
from fcamlib.config.tasks import Bags, Coco, Mosaics, Orthogonal, Scenes, Series, Text, as_list

# CIFAR-100's animals and people, the foreground of the paper's experiment
LIVING = tuple(
    as_list("""
    beaver, dolphin, otter, seal, whale, aquarium_fish, flatfish, ray, shark, trout, bee, beetle, butterfly,
    caterpillar, cockroach, bear, leopard, lion, tiger, wolf, camel, cattle, chimpanzee, elephant, kangaroo, fox,
    porcupine, possum, raccoon, skunk, crab, lobster, snail, spider, worm, baby, boy, girl, man, woman,
    crocodile, dinosaur, lizard, snake, turtle, hamster, mouse, rabbit, shrew, squirrel
    """)
)


def _training(rate: float, hard_rate: float, network: str, **more: Any) -> dict[str, Any]:
    """Learning rates, networks and other defaults of a source."""
    rates = {"learning_rates": (rate,), "hard_learning_rates": (hard_rate,)}
    networks = {"focus_network": network, "classification_network": network}
    return rates | networks | {"precision": "float32", "memory_layout": "contiguous"} | more


_PICTURES = _training(0.05, 0.01, "cifar10", memory_layout="channels_last", epochs=30, batch_size=256) | {
    "num_train": 10_000, "num_validation": 2_000, "num_test": 10_000, "image_size": 32,
}  # fmt: skip
_DIGITS = _training(0.05, 0.05, "digits", memory_layout="channels_last", epochs=20, batch_size=64) | {
    "num_train": 2_000, "num_validation": 500, "num_test": 2_000, "image_size": 8, "precision": "float64",
    "foreground": ("0", "1", "2"),
}  # fmt: skip
_POSTS = _training(0.1, 0.1, "", epochs=50, batch_size=256, encoder="embedding", max_tokens=512)
_KEYWORDS = _training(0.03, 0.03, "", epochs=8, batch_size=50, encoder="embedding", precision="float64") | {
    "num_train": 500, "num_validation": 200, "num_test": 500, "max_tokens": 12,
}  # fmt: skip
_MOTIFS = _training(0.05, 0.05, "conv1d", epochs=16, batch_size=30, precision="float64") | {
    # the best of the rates 0.02, 0.05 and 0.1 on validation series, with seeds 100 to 102
    "window_length": 24, "num_segments": 5, "num_channels": 2, "num_classes": 3, "noise": 0.6, "distractors": 0.5,
    "num_train": 300, "num_validation": 100, "num_test": 300,
}  # fmt: skip
_CLOUDS = _training(0.02, 0.02, "mlp", epochs=12, batch_size=50, precision="float64") | {
    # the best of the rates 0.02, 0.05 and 0.1 on validation bags, with seed 100
    "num_segments": 12, "num_features": 10, "num_classes": 3, "num_train": 400, "num_validation": 150, "num_test": 300,
}  # fmt: skip
_SERIES = _training(0.02, 0.01, "conv1d", epochs=30, batch_size=64)
_BAGS = _training(0.01, 0.01, "mlp", epochs=40, batch_size=16)

_ANNOTATORS = ("label", "rationale")
_NUMBERS = ("num_segments", "num_classes", "num_train", "num_validation", "num_test")
_MADE_SERIES = (*_NUMBERS, "num_channels", "noise", "distractors")
_FOLDER = "folder that holds train/<class>/ and test/<class>/ with pictures"
_POST_FOLDER = "folder that holds dataset.json and post_id_divisions.json"
_POST_FILE = "file with one JSON object per line, or of a folder with train.jsonl and test.jsonl"
_COCO_FOLDER = "folder that holds annotations/, train2014/ and val2014/"
_MOSAICS, _TEXT = "fcamlib.data.mosaics:mosaic_task", "fcamlib.data.text:text_task"
_POST_FILES, _COCO_FILES = "fcamlib.data.posts:post_files", "fcamlib.data.coco:task_files"
_PICTURE_FILES = "fcamlib.data.pictures:folder_files"
_CAPTIONS = "fcamlib.data.captions:caption_task"
_SERIES_TASK, _BAGS_TASK = "fcamlib.data.vectors:series_task", "fcamlib.data.vectors:bags_task"

for _kind, _source in {
    "orthogonal": Source(
        Orthogonal, "fcamlib.data.mosaics:orthogonal_task", "the linear orthogonal task",
        without=("num_validation", "num_test"),
    ),
    "digits": Source(Mosaics, _MOSAICS, "8 x 8 digits that come with scikit-learn", _DIGITS),
    "cifar10": Source(
        Mosaics, _MOSAICS, "CIFAR-10, downloaded", _PICTURES | {"foreground": ("airplane", "automobile", "bird")}
    ),
    "cifar100": Source(
        Mosaics, _MOSAICS, "CIFAR-100, downloaded",
        _PICTURES | {"foreground": LIVING, "focus_network": "cifar100", "classification_network": "cifar100"},
    ),
    "folder": Source(Mosaics, _MOSAICS, "your own pictures", _PICTURES, _FOLDER, False, _PICTURE_FILES),
    "keywords": Source(Text, _TEXT, "generated posts", _KEYWORDS, without=_ANNOTATORS),
    "hatexplain": Source(Text, _TEXT, "HateXplain, downloaded", _POSTS, _POST_FOLDER, True, _POST_FILES),
    "text": Source(Text, _TEXT, "your own posts", _POSTS, _POST_FILE, files=_POST_FILES, without=_ANNOTATORS),
    "motifs": Source(Series, _SERIES_TASK, "generated time series", _MOTIFS),
    "series": Source(
        Series, _SERIES_TASK, "your own time series", _SERIES, "file of series (.npz)",
        without=_MADE_SERIES,
    ),
    "clouds": Source(
        Bags, _BAGS_TASK, "generated bags", _CLOUDS, without=("repeat", "fold", "validation_share"),
    ),
    "bags": Source(
        Bags, _BAGS_TASK, "your own bags", _BAGS, "file of bags (.npz)",
        without=(*_NUMBERS, "num_features", "validation_share"),
    ),
    "scenes": Source(Scenes, _CAPTIONS, "generated pictures with captions"),
    "coco": Source(Coco, _CAPTIONS, "MS COCO 2014, or data in its layout", {}, _COCO_FOLDER, True, _COCO_FILES),
}.items():  # fmt: skip
    register_source(_kind, _source)

CAPTIONS: dict[str, dict[str, Any]] = {  # other defaults are the paper's, as far as its public scripts state them
    "scenes": {  # chosen on validation pictures, so that a run takes seconds
        "num_train": 150, "num_validation": 50, "num_test": 100, "max_objects": 1, "image_size": 56,
        "min_count": 1, "encoder": "smallcnn", "region_dim": 32, "attention_dim": 16, "embedding_dim": 32,
        "hidden_dim": 96, "start_state": "zero", "state_sees": "word", "epochs": 9, "switch_epoch": 6,
        "encoder_learning_rate": 6e-3, "decoder_learning_rate": 6e-3, "later_encoder_learning_rate": 1e-3,
        "later_decoder_learning_rate": 1e-3, "batch_size": 20, "credit": "rest", "precision": "float64",
    },
    "coco": {  # values for parameters that a notebook leaves at 0 or empty
        "num_validation": 5_000, "encoder": "features", "epochs": 20, "switch_epoch": 10, "batch_size": 100,
        "decoder_learning_rate": 1e-3, "later_decoder_learning_rate": 1e-5, "state_sees": "region", "credit": "caption",
    },
}  # fmt: skip
_FOCUS: dict[str, Any] = {  # a sweep does not use validation or test data; the rates and epochs are the paper's
    "num_validation": 1, "num_test": 1, "epochs": 100, "soft_learning_rate": 0.004, "lvml_learning_rate": 0.004,
    "hard_learning_rate": 0.01,
}  # fmt: skip
SWEEPS: dict[str, dict[str, Any]] = {  # other defaults are the paper's
    "orthogonal": {"precision": "float64", "initial": "zero"},
    "digits": _FOCUS | {
        "epochs": 40, "soft_learning_rate": 0.02, "hard_learning_rate": 0.05, "lvml_learning_rate": 0.02,
    },
    "cifar10": _FOCUS,
    "cifar100": _FOCUS,
    "folder": _FOCUS,
}  # fmt: skip
_NETWORKS = ("linear", "mlp:1x8", "mlp:1x64", "mlp:3x64", "mlp:3x64:layer", "mlp:3x64:batch")
_CHOSEN: dict[str, Any] = {"learning_rates": (0.02, 0.05), "search_epochs": 5}  # on validation mosaics of each seed
_ABLATION: dict[str, Any] = {
    "paradigms": ("soft", "hard", "hybrid"), "num_train": 1_000, "num_validation": 500, "num_test": 1_000,
    "epochs": 20, "seeds": (0, 1, 2, 3, 4),
}  # fmt: skip
_SWITCHES = (  # data, epochs, and the epochs at which the hybrid switches
    ("digits", 20, (1, 2, 3, 5, 10, 15, 19)), ("keywords", 8, (1, 2, 3, 4, 6, 7)),
    ("motifs", 16, (1, 2, 4, 6, 8, 10, 12, 15)), ("clouds", 12, (1, 2, 3, 4, 6, 9, 11)),
)  # fmt: skip
STUDIES: dict[str, dict[str, Any]] = {  # recorded studies, by the names that `fcam study` accepts
    "scale": {"num_segments": (5, 20, 100, 1_000, 5_000), "epochs": 40, "seeds": (0, 1, 2)},
    "capacities": {**_ABLATION, **_CHOSEN, "focus_networks": _NETWORKS, "classification_networks": _NETWORKS},
    "switches": {**_ABLATION, **_CHOSEN, "soft_shares": (0.1, 0.25, 0.5, 0.75, 0.9)},
    **{
        f"switches-{dataset}": {
            "dataset": dataset,
            "paradigms": ("soft", "hard", "hybrid"),
            "seeds": tuple(range(10)),
            "soft_shares": tuple(round(epoch / epochs, 3) for epoch in switches),
        }
        for dataset, epochs, switches in _SWITCHES
    },
    "controls": {"paradigms": ("soft", "hard", "hybrid", "soft+soft", "hard+hard"), "seeds": tuple(range(30))},
    "rates": {**_ABLATION, "each_learning_rate": (0.005, 0.01, 0.02, 0.05, 0.1)},
}
