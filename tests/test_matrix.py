"""Every notebook on every source that its page names, at the smallest sizes, ends in numbers."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from PIL import Image

from fcamlib.config import Scenes
from fcamlib.notebook import INJECTED, parameters

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
TINY: dict[str, Any] = {"epochs": 2, "paradigms": "hybrid"}
FEW = {"num_train": 12, "num_validation": 6, "num_test": 6}
RUNS = TINY | FEW | {"num_segments": 2}
SWEEP = {"epochs": 2, "paradigms": "soft", "num_train": 12, "num_segments": 2, "alphas": [0.5]}
ABLATION = FEW | {"epochs": 2, "num_segments": 2, "soft_shares": [0.5], "each_learning_rate": [0.05]}
ABLATION |= {"focus_networks": ["linear"], "classification_networks": ["linear"]}
WINDOWS = TINY | {"window_length": 12}
CAPTIONS = TINY | {"switch_epoch": 1}
COCO = CAPTIONS | {"encoder": "smallcnn", "num_validation": 4, "image_size": 32}
COCO |= dict.fromkeys(("region_dim", "attention_dim", "embedding_dim", "hidden_dim"), 8)
# Notebook -> source -> parameters of the smallest experiment.
SOURCES: dict[str, dict[str, dict[str, Any]]] = {
    **{name: {"digits": RUNS, "folder": RUNS} for name in ("01", "02", "03")},
    "06": {"digits": SWEEP, "folder": SWEEP},
    "07": {"keywords": TINY | FEW, "text": TINY, "blind text": TINY},
    "08": {"motifs": TINY | {"num_train": 12}, "series": WINDOWS, "blind series": WINDOWS},
    "09": {"clouds": TINY | {"num_train": 12}, "bags": TINY, "blind bags": TINY},
    "10": {"scenes": CAPTIONS, "coco": COCO},
    "12": {name: RUNS | {"num_segments": [2], "soft_shares": [0.5]} for name in ("digits", "folder")},
    "13": {"digits": ABLATION, "folder": ABLATION},
}
CASES = [(name, source, seeds) for name, sources in SOURCES.items() for source in sources for seeds in (1, 2)]
FAST = [("08", "blind series", 1), ("09", "blind bags", 1)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, write_coco: Callable[[Path, Any, int], str]) -> dict[str, str]:
    """A user's own data of each kind, "blind" where nothing says what decides the label."""
    root, draws = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    for place, split in enumerate(np.repeat(["train", "test"], [60, 40])):
        folder = root / "pictures" / split / ("red", "green", "blue")[place % 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(folder / f"{place}.png")
    label = np.arange(40) % 2
    posts = [{"tokens": list("abcd"), "label": int(k), "rationale": [1, 0, 0, 0]} for k in label]
    found = {"folder": f"folder:{root}/pictures"}
    for blind in ("", "blind "):
        name = root / f"{blind.strip()}mine"
        lines = [{key: value for key, value in post.items() if not blind or key != "rationale"} for post in posts]
        name.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, lines)))
        arrays: dict[str, dict[str, Any]] = {
            "series": {"series": draws.normal(size=(40, 2, 48)), "foreground": np.arange(48) < np.full((40, 1), 12)},
            "bags": {"features": draws.normal(size=(120, 3)), "bag": np.arange(120) // 3, "foreground": [True] * 120},
        }
        for kind, content in arrays.items():
            np.savez(
                f"{name}-{kind}.npz",
                label=label,
                **{k: v for k, v in content.items() if not blind or k != "foreground"},
            )
        found |= {f"{blind}text": f"text:{name}.jsonl", f"{blind}series": f"series:{name}-series.npz"}
        found |= {f"{blind}bags": f"bags:{name}-bags.npz"}
    scenes = Scenes(num_train=24, num_validation=4, num_test=4)
    return found | {"coco": write_coco(root / "coco", scenes, 0)}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A notebook's namespace without a process of its own, and folders for what it writes."""
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("FCAM_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a shell puts its own module there
    yield InteractiveShell()
    plt.close("all")


def error_of(name: str, source: str, given: dict[str, Any], own: dict[str, str], shell: InteractiveShell) -> Any:
    """What stops a notebook that is run on a source with some parameters; the kernel is this process."""
    given = given | {"dataset": own.get(source, source)} | ({"foreground": "red,green"} if source == "folder" else {})
    shell.reset()
    (path,) = NOTEBOOKS.glob(f"{name}_*.ipynb")
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    place = next(i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", [])) + 1
    code = [cell.source for cell in cells]
    code.insert(place, "\n".join([INJECTED, *(f"{key} = {value!r}" for key, value in given.items())]))
    for lines in code:
        with capture_output():
            result = shell.run_cell(lines, store_history=True)
        if error := result.error_before_exec or result.error_in_exec:
            return error
    return None


@pytest.mark.parametrize(
    ("name", "source", "num_seeds"),
    [pytest.param(*case, marks=[] if case in FAST else pytest.mark.slow) for case in CASES],
)
def test_it_ends_in_numbers(
    name: str, source: str, num_seeds: int, own: dict[str, str], shell: InteractiveShell
) -> None:
    """Warnings are errors."""
    given = SOURCES[name][source] | {"seeds": list(range(num_seeds))}
    assert error_of(name, source, given, own, shell) is None


def test_every_source_takes_what_is_left_as_it_is(
    own: dict[str, str], shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 and empty are each source's own value; nothing is computed."""

    def checked(*given: Any) -> None:
        parameters(*given)
        raise InterruptedError

    monkeypatch.setattr("fcamlib.notebook.parameters", checked)
    needed = {"series": {"window_length": 12}}
    for name, source in dict.fromkeys((name, source) for name, source, _ in CASES):
        error = error_of(name, source, needed.get(source.split()[-1], {}), own, shell)
        assert isinstance(error, InterruptedError), (name, source, error)
