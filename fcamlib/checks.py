"""What `fcam check` reports: versions, devices, folders, data sets, runs. Nothing is changed or downloaded."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fcamlib import __version__, paths, store

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "matplotlib",
    "pydantic",
    "safetensors",
    "pycocotools",
    "papermill",
    "jupyter-book",
    "snakemake",
)
# sha256 over the 1,797 digits as bytes, then their labels.
DIGITS_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"

Line = tuple[str, str]  # what, and its state


def report() -> str:
    """The whole report as aligned text."""
    sections = {
        "Versions": _versions(),
        "Devices": _devices(),
        "Folders": _folders(),
        "Data sets": _data_sets(),
        "Runs": _runs(),
    }
    width = max(len(name) for lines in sections.values() for name, _ in lines)
    parts = []
    for title, lines in sections.items():
        parts.append("\n".join([title, *(f"  {name:<{width}}  {state}".rstrip() for name, state in lines)]))
    return "\n\n".join(parts)


def _versions() -> list[Line]:
    lines = [("fcamlib", __version__), ("python", platform.python_version())]
    for name in PACKAGES:
        try:
            lines.append((name, version(name)))
        except PackageNotFoundError:
            lines.append((name, "not installed"))
    return lines


def _devices() -> list[Line]:
    import torch

    from fcamlib.provenance import cpu_name

    lines = [
        ("CPU", f"{cpu_name()}, {os.cpu_count()} threads, instruction set {torch.backends.cpu.get_cpu_capability()}")
    ]
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        lines.append((f"CUDA {number}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB"))
    return lines if len(lines) > 1 else [*lines, ("CUDA", "no device")]


def _folders() -> list[Line]:
    folders = {
        "data (FCAM_DATA)": paths.data_dir(),
        "results (FCAM_RESULTS)": paths.results_dir(),
        "figures (FCAM_FIGURES)": paths.figures_dir(),
    }
    if recorded := paths.recorded_dir():
        folders["recorded runs"] = recorded
    return [(name, f"{_folder_state(folder)}: {folder}") for name, folder in folders.items()]


def _folder_state(folder: Path) -> str:
    """Whether files can be written in a folder, or in the nearest one above it that exists."""
    nearest = next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        return f"NOT WRITABLE ({error.strerror})"
    return "writable" if nearest == folder else "will be made when needed"


def _data_sets() -> list[Line]:
    from fcamlib.data.pictures import CIFAR, cifar_state

    lines = [("digits", _digits())]
    for name in CIFAR:
        try:
            state = cifar_state(name)
        except OSError as error:
            state = f"damaged: {error.strerror}"
        missing = "absent; downloaded when first used"
        lines.append((name, missing if state == "absent" else state.replace("damaged", "DAMAGED")))
    lines.append(("coco", _coco()))
    return lines + [(f"folder:{folder.name}", _folder_source(folder)) for folder in _picture_folders()]


def _coco() -> str:
    from fcamlib.data.coco import survey

    try:
        return survey(paths.data_dir() / "coco")
    except OSError as error:
        return f"NOT USABLE: '{error.filename}' cannot be read ({error.strerror})"


def _digits() -> str:
    from sklearn.datasets import load_digits

    digits = load_digits()
    content = digits.images.astype("uint8").tobytes() + digits.target.astype("uint8").tobytes()
    return "verified" if hashlib.sha256(content).hexdigest() == DIGITS_SHA256 else "DAMAGED: not scikit-learn's digits"


def _picture_folders() -> Iterable[Path]:
    """Folders in the data folder that hold train/ and test/."""
    try:
        inside = sorted(paths.data_dir().iterdir())
    except OSError:
        return []
    return [folder for folder in inside if all((folder / split).is_dir() for split in ("train", "test"))]


def _folder_source(folder: Path) -> str:
    """Classes and pictures of a folder of pictures, or what keeps it from being used."""
    try:
        train, test = (_class_sizes(folder / split) for split in ("train", "test"))
    except OSError as error:
        return f"NOT USABLE: '{error.filename}' cannot be read ({error.strerror})"
    if not train and not test:
        return "not of pictures: train/ and test/ hold no class folders"
    if odd := sorted(set(train) ^ set(test)):
        return f"NOT USABLE: class '{odd[0]}' is in only one of train/ and test/"
    if empty := sorted(name for name in train if not train[name] or not test[name]):
        return f"NOT USABLE: class '{empty[0]}' has no pictures in one of train/ and test/"
    return f"present: {len(train)} classes, {sum(train.values())} pictures in train/, {sum(test.values())} in test/"


def _class_sizes(folder: Path) -> dict[str, int]:
    return {entry.name: _num_pictures(entry) for entry in folder.iterdir() if entry.is_dir()}


def _num_pictures(folder: Path) -> int:
    from torchvision.datasets.folder import IMG_EXTENSIONS

    found = os.walk(folder, followlinks=True)
    return sum(file.lower().endswith(IMG_EXTENSIONS) for _, _, files in found for file in files)


def _runs() -> list[Line]:
    lines, damaged = [], []
    for kind, root in (("recorded", paths.recorded_dir()), ("stored", paths.results_dir())):
        results = store.survey(root)
        lines.append((kind, f"{sum(not result.damage for result in results)} verified"))
        damaged += [("DAMAGED", f"{result.folder}: {result.damage}") for result in results if result.damage]
    unfinished = store.unfinished()
    lines.append(("unfinished", f"{len(unfinished)}: {', '.join(unfinished)}" if unfinished else "0"))
    return lines + damaged
