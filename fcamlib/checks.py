"""The report of `fcam check`: versions, devices, folders, data sets, results. It changes and downloads nothing."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fcamlib import __version__, paths, store
from fcamlib.config import SOURCES, Training
from fcamlib.provenance import cpu_name, slow_bfloat16

PACKAGES = ("torch", "torchvision", "numpy", "scipy", "scikit-learn", "pandas", "matplotlib", "pydantic", "safetensors",
            "pycocotools", "papermill", "jupyter-book", "snakemake")  # fmt: skip
# sha256 over the 1,797 digits as bytes, then their labels.
DIGITS_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
ABSENT = "absent; downloaded when first used"
Line = tuple[str, str]  # name, state


def report() -> str:
    """The whole report as aligned text."""
    sections = {"Versions": _versions(), "Devices": _devices(), "Folders": _folders(), "Data sets": _data_sets(),
                "Results": _results()}  # fmt: skip
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

    capability = torch.backends.cpu.get_cpu_capability()
    lines = [("CPU", f"{cpu_name()}, {os.cpu_count()} threads, instruction set {capability}")]
    lines.append(("bfloat16", slow_bfloat16(Training(precision="bfloat16", device="cpu")) or "as fast as float32"))
    devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    cuda = [(f"CUDA {n}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB") for n, device in enumerate(devices)]
    return lines + (cuda or [("CUDA", "no device")])


def _folders() -> list[Line]:
    folders = {"data (FCAM_DATA)": paths.data_dir(), "results (FCAM_RESULTS)": paths.results_dir(),
               "figures (FCAM_FIGURES)": paths.figures_dir(), "recorded runs": paths.recorded_dir()}  # fmt: skip
    return [(name, f"{_folder_state(folder)}: {folder}") for name, folder in folders.items() if folder]


def _folder_state(folder: Path) -> str:
    """Whether files can be written in a folder, or in its nearest existing parent."""
    nearest = next(parent for parent in (folder, *folder.parents) if os.path.lexists(parent))
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return "writable" if nearest == folder else "will be created when needed"
    except OSError as error:
        return f"NOT WRITABLE ({error.strerror})"


def _data_sets() -> list[Line]:
    """One line per source, and one per data set of the user's own in the data folder."""
    lines: list[Line] = []
    for kind, source in SOURCES.items():
        if not source.path or source.optional:
            lines.append((kind, _tried(_state, kind)))
        own = _own(kind) if source.path else []
        if source.path and not own and not source.optional:
            lines.append((f"{kind}:PATH", "none in the data folder"))
        lines += [
            (f"{kind}:{path.name}", _tried(_folder_source, path) if kind == "folder" else "present") for path in own
        ]
    return lines


def _tried(state: object, of: object) -> str:
    try:
        return state(of)  # type: ignore[operator]
    except OSError as error:
        return f"NOT USABLE: '{error.filename}' cannot be read ({error.strerror})"


def _state(kind: str) -> str:
    """Whether a source of this package is present and verified."""
    from fcamlib.data import coco, pictures, posts

    if kind == "digits":
        from sklearn.datasets import load_digits

        content = b"".join(part.astype("uint8").tobytes() for part in load_digits(return_X_y=True))
        return "verified" if hashlib.sha256(content).hexdigest() == DIGITS_SHA256 else "DAMAGED: not scikit-learn's"
    if kind in pictures.CIFAR:
        state = pictures.cifar_state(kind)
        return ABSENT if state == "absent" else state.replace("damaged", "DAMAGED")
    if kind == "coco":
        return coco.survey(paths.data_dir() / "coco")
    if kind == "hatexplain":
        files = {name: paths.data_dir() / kind / name for name in posts.OFFICIAL_FILES}
        missing = [name for name, path in files.items() if not path.is_file()]
        sums = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if not missing}
        odd = [name for name, digest in sums.items() if digest != posts.OFFICIAL_FILES[name]]
        return ABSENT if missing else f"not the official file: {odd[0]}" if odd else "verified"
    return "generated"


def _own(kind: str) -> list[Path]:
    """A user's own data of a kind in the data folder: folders of pictures, or the content of the folder `kind`."""
    try:
        inside = sorted(paths.data_dir().iterdir())
        if kind == "folder":
            return [path for path in inside if all((path / split).is_dir() for split in ("train", "test"))]
        places = [path for path in inside if path.name == kind and path.is_dir() and not SOURCES[kind].optional]
        return [file for place in places for file in sorted(place.iterdir()) if not file.name.startswith(".")]
    except OSError:
        return []


def _folder_source(folder: Path) -> str:
    """Numbers of classes and pictures in a folder of pictures, or why it cannot be used."""
    train, test = ({entry.name: _num_pictures(entry) for entry in sorted((folder / split).iterdir()) if entry.is_dir()}
                   for split in ("train", "test"))  # fmt: skip
    if not train and not test:
        return "no pictures: train/ and test/ hold no class folders"
    if odd := sorted(name for name in {*train, *test} if not train.get(name) or not test.get(name)):
        return f"NOT USABLE: class '{odd[0]}' has no pictures in one of train/ and test/"
    return f"present: {len(train)} classes, {sum(train.values())} pictures in train/, {sum(test.values())} in test/"


def _num_pictures(folder: Path) -> int:
    from torchvision.datasets.folder import IMG_EXTENSIONS

    found = os.walk(folder, followlinks=True)
    return sum(file.lower().endswith(IMG_EXTENSIONS) for _, _, files in found for file in files)


def _results() -> list[Line]:
    lines, damaged = [], []
    for kind, root in (("recorded", paths.recorded_dir()), ("stored", paths.results_dir())):
        results = store.survey(root)
        lines.append((kind, f"{sum(not result.damage for result in results)} verified"))
        damaged += [("DAMAGED", f"{result.folder}: {result.damage}") for result in results if result.damage]
    unfinished = store.unfinished()
    lines.append(("unfinished", f"{len(unfinished)}: {', '.join(unfinished)}" if unfinished else "0"))
    return lines + damaged
