"""A browser for the tests that need one, folders of a test's own, scenes in the layout of COCO."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH: install the package chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results folder of a test of its own: empty, as are those of data, figures and recorded results."""
    for variable, name in (("FCAM_DATA", "data"), ("FCAM_RESULTS", "results"), ("FCAM_FIGURES", "figures")):
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setattr("fcamlib.paths.recorded_dir", lambda: tmp_path / "recorded")
    return tmp_path / "results"


@pytest.fixture(scope="session")
def write_coco() -> Callable[[Path, Any, int], str]:
    """Writes scenes into a folder in the layout of COCO 2014; the name of the source."""

    def write(folder: Path, config: Any, seed: int) -> str:
        from fcamlib.data.scenes import scene_pictures

        *parts, names = scene_pictures(config, seed)
        categories = [{"id": number, "name": name} for number, name in enumerate(names)]
        (folder / "annotations").mkdir(parents=True)
        for split, pictures in zip(("train2014", "val2014"), parts, strict=True):
            (folder / split).mkdir()
            images: list[dict[str, Any]] = []
            captions: list[dict[str, Any]] = []
            boxes: list[dict[str, Any]] = []
            for picture in pictures:
                number, name = picture.image_id, f"COCO_{split}_{picture.image_id:012d}.png"
                Image.fromarray(np.asarray(picture.pixels)).save(folder / split / name)
                images.append({"id": number, "file_name": name, "width": picture.width, "height": picture.height})
                for place, words in enumerate(picture.captions):
                    captions.append({"id": 10 * number + place, "image_id": number, "caption": " ".join(words)})
                for place, (category, box) in enumerate(picture.objects):
                    boxes.append({"id": 10 * number + place, "image_id": number, "category_id": category, "bbox": box})
            for kind, content in (
                ("captions", {"images": images, "annotations": captions}),
                ("instances", {"images": images, "annotations": boxes, "categories": categories}),
            ):
                (folder / "annotations" / f"{kind}_{split}.json").write_text(json.dumps(content), "utf-8")
        return f"coco:{folder}"

    return write
