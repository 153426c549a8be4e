"""Features of a frozen encoder: computed once for every picture, kept on disk as bfloat16, read as a memory map.

`vgg19` is torchvision's VGG-19 up to before its last max-pooling: 512 features in each of 14 x 14 regions of a picture
of 224 pixels (in general (S / 16) x (S / 16)), after the ReLU, regions row by row. Its weights are torchvision's
`VGG19_Weights.IMAGENET1K_V1`, from torch's hub cache, downloaded there where missing, or a file of the same layout
(.pth or .safetensors) given by path. A file whose name ends in a hash, as the official ones do, has to have it.
Source: arXiv 2307.13421, experiments on MSCOCO; Xu et al., Show, attend and tell, ICML 2015.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import torch
from jaxtyping import BFloat16, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torchvision.models import VGG19_Weights, vgg19

from fcamlib.data.array_cache import Layout, kept
from fcamlib.data.coco import CocoPicture, pictures_digest
from fcamlib.errors import DataError

VGG19_CUT = 36  # layers of `features` that are kept: all but the last, a max-pooling
CHUNK = 64  # pictures that are encoded at once
_HASHED_NAME = re.compile(r"-([0-9a-f]{8,64})\.\w+$")


@dataclass(frozen=True)
class FrozenEncoder:
    """A network whose weights stay as they are.

    Parameters
    ----------
    module : nn.Module
        (n, 3, S, S) pictures, normalised as ImageNet's -> (n, D, h, w) features.
    name : str
    sha256 : str
        Of the weights' file: the kept features belong to these weights.
    """

    module: nn.Module
    name: str
    sha256: str


def picture_features(
    pictures: Sequence[CocoPicture],
    image_size: int,
    encoder: FrozenEncoder,
    read: Callable[[Sequence[CocoPicture], int], UInt8[Tensor, "n S S 3"]],
    root: Path,
    device: torch.device | None = None,
) -> BFloat16[Tensor, "P L D"]:
    """Features of each picture in its L = h w regions, row by row, from the cache in `root` or computed into it.

    Parameters
    ----------
    pictures : P pictures
    image_size : int
    encoder : FrozenEncoder
    read : callable
        Pictures and image_size -> their pixels.
    root : Path
    device : torch.device, optional
        Where to compute, in float32; the CPU by default.
    """
    device = device or torch.device("cpu")
    module = encoder.module.eval().requires_grad_(False)
    with torch.inference_mode():
        one = module.to(device)(torch.zeros(1, 3, image_size, image_size, device=device))
    _, num_features, height, width = one.shape
    about = {
        "encoder": encoder.name,
        "weights": encoder.sha256,
        "pictures": pictures_digest(pictures),
        "image_size": image_size,
    }
    layout = Layout(encoder.name, about, (len(pictures), height * width, num_features), torch.bfloat16, CHUNK)

    def compute(chunk: range) -> BFloat16[Tensor, "n L D"]:
        pixels = read(pictures[chunk.start : chunk.stop], image_size).to(device)
        with torch.inference_mode():
            features = module(normalised(pixels))  # (n, D, h, w)
        return features.flatten(2).transpose(1, 2).to("cpu", torch.bfloat16)

    return kept(layout, root, compute)


def normalised(pixels: UInt8[Tensor, "n S S 3"]) -> Tensor:
    """(value / 255 - mean) / deviation of ImageNet's channels, in float32: (n, 3, S, S)."""
    usual = VGG19_Weights.IMAGENET1K_V1.transforms()
    mean, deviation = (torch.tensor(values, device=pixels.device) for values in (usual.mean, usual.std))
    return ((pixels.float() / 255 - mean) / deviation).permute(0, 3, 1, 2).contiguous()


def vgg19_encoder(weights: str = "") -> FrozenEncoder:
    """VGG-19 with torchvision's weights, or those of the file `weights`. Raises `DataError` in one sentence."""
    file = Path(weights).expanduser() if weights else _official_file()
    digest = _verified_digest(file, weights)
    module = vgg19_layers()
    state = {
        name.removeprefix("features."): value for name, value in _state(file).items() if name.startswith("features.")
    }
    try:
        module.load_state_dict(state, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split()[:30])
        raise DataError(f"weights='{file}' are not those of torchvision's VGG-19 ({reason}).") from None
    return FrozenEncoder(module, "vgg19", digest)


def vgg19_layers() -> nn.Sequential:
    """The layers that are used, without weights (on the device `meta`)."""
    with torch.device("meta"):
        layers: nn.Sequential = vgg19(weights=None).features[:VGG19_CUT]
    return layers


def _official_file() -> Path:
    """The official weights in torch's hub cache, downloaded there where they are missing."""
    url = VGG19_Weights.IMAGENET1K_V1.url
    file = Path(torch.hub.get_dir(), "checkpoints", Path(urlparse(url).path).name)
    if not file.is_file():
        (prefix,) = _HASHED_NAME.findall(file.name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(file), hash_prefix=prefix, progress=sys.stderr.isatty())
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"features='vgg19': there are no weights at '{file}', and the download of {url} failed "
                f"({' '.join(str(error).split())}): put the file there, or name it with weights=PATH."
            ) from None
    return file


def _verified_digest(file: Path, given: str) -> str:
    """sha256 of a weights' file, which has to begin with the hash in its name, if it has one."""
    try:
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"weights='{given or file}': the file cannot be read ({error.strerror}).") from None
    if (named := _HASHED_NAME.search(file.name)) and not digest.startswith(named[1]):
        raise DataError(
            f"weights='{file}': its sha256 begins with {digest[: len(named[1])]} and not with {named[1]}, as its name "
            "says: remove the file and get it anew."
        )
    return digest


def _state(file: Path) -> dict[str, Tensor]:
    """The tensors of a weights' file; no pickled object is loaded."""
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"weights='{file}': it is not a readable .pth or .safetensors file ({reason}).") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(f"weights='{file}': it does not hold named tensors: give a state dict.")
    return state
