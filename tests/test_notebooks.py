"""Notebooks: in a state that can be compared, with good and wrong parameters, and on every source that a page names."""

import ast
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat import NotebookNode
from nbval.plugin import IPyNbFile, coalesce_streams, get_sanitize_patterns
from papermill.cli import papermill
from PIL import Image

from fcamlib.config import Grid, Mosaics, Scenes, SweepGrid
from fcamlib.errors import UserError
from fcamlib.notebook import INJECTED, effective, parameters

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
MAX_BYTES = 200_000
MAX_CELL_LINES = 15

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@each_notebook
def test_stored_outputs_are_of_one_run_and_text_that_can_be_compared(path: Path) -> None:
    notebook = read(path)
    cells = [cell for cell in code_cells(notebook) if cell.source.strip()]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for output in (output for cell in cells for output in cell.outputs):
        assert output.output_type != "error", f"stored error {output.get('ename')}"
        assert output.get("name") != "stderr", f"stored stderr: {output.get('text', '')[:200]}"
        assert not [kind for kind in output.get("data", {}) if kind.startswith(("image/", "application/"))]
    assert path.stat().st_size < MAX_BYTES and str(ROOT) not in path.read_text()
    assert notebook.metadata.kernelspec.name == "python3"
    assert "papermill" not in notebook.metadata and "widgets" not in notebook.metadata


@each_notebook
def test_parameters_are_literals_cells_short_and_figures_described(path: Path) -> None:
    for cell in code_cells(read(path)):
        code = ast.parse(cell.source)
        if "parameters" in cell.metadata.get("tags", []):
            for statement in code.body:
                assert isinstance(statement, ast.AnnAssign) and statement.value is not None
                ast.literal_eval(statement.value)
        assert len(cell.source.splitlines()) <= MAX_CELL_LINES, f"long cell: {cell.source[:80]}"
        defined = [n.name for n in ast.walk(code) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        assert not defined or path.stem == "00_from_scratch", f"{defined} belong in fcamlib"
        if "plots.show(" in cell.source:
            shown = cell.metadata.get("mystnb", {})
            assert len(shown.get("image", {}).get("alt", "")) > 20, f"no alt text: {cell.source}"
            assert shown["figure"].get("caption") and shown["figure"].get("name"), f"no caption: {cell.source}"


@each_notebook
def test_the_book_shows_what_is_stored(path: Path, request: pytest.FixtureRequest) -> None:
    """Papermill has just executed the notebook for the book: nbval compares these outputs as it does its own.

    The line under a figure is left out: the book dates it and moves it into a cell of its own.
    """
    own = ("injected-parameters", "remove-input")
    executed = [cell for cell in code_cells(read(ROOT / "book" / "notebooks" / path.name))
                if not set(own) & set(cell.metadata.get("tags", []))]  # fmt: skip
    stored: IPyNbFile = IPyNbFile.from_parent(request.session, path=path)
    stored.sanitize_patterns.update(get_sanitize_patterns((ROOT / "nbval.cfg").read_text()))
    for cell, shown in zip(stored.collect(), executed, strict=True):
        kept = [output for output in cell.cell.outputs if "figure-note" not in str(output.get("data"))]
        outputs = map(coalesce_streams, (shown.outputs, kept))
        same = cell.cell.source == shown.source and cell.compare_outputs(*outputs)
        assert same, f"{shown.source}\n" + "".join(cell.comparison_traceback)


def namespace(injected: str = "", **names: Any) -> dict[str, Any]:
    """What `globals()` of a notebook holds: names, and the source of each cell that has run."""
    cells = ["", "seeds = [0]", f"# Parameters\n{injected}\n"] if injected else ["", "seeds = [0]"]
    return {"In": cells, "Out": {}, **names}


def test_fields_are_taken_listed_in_the_cell_or_not_and_other_names_left_alone() -> None:
    found: Grid = parameters(
        namespace('precision = "float32"', precision="float32", seeds="[3, 4]", num_segments="7", fig=1)
    )
    assert isinstance(found.task, Mosaics)
    assert (found.seeds, found.task.num_segments, found.precision) == ((3, 4), 7, "float32")


def test_what_the_caller_gave_without_effect_is_said_and_not_what_the_cell_holds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rates = {"soft_learning_rate": 0.25, "hard_learning_rate": 0.05, "lvml_learning_rate": 0.25}
    parameters(namespace('paradigms = "soft"\nhard_learning_rate = 0.05', paradigms="soft", **rates), SweepGrid)
    assert caplog.messages == ["hard_learning_rate=0.05 has no effect: hard is not trained."]


def test_the_table_of_parameters_shows_the_values_that_are_used() -> None:
    shown = effective(parameters(namespace(num_train=0, epochs=0, seeds="3,4")))["value"]
    expected = {"num_train": "2000", "epochs": "20", "switch_epoch": "10", "seeds": "3, 4", "foreground": "0, 1, 2"}
    assert shown[list(expected)].to_dict() == expected


def test_a_wrong_name_is_one_sentence_and_shown_without_a_traceback() -> None:
    with pytest.raises(
        UserError, match=r"^'num_segmets' is not a parameter: did you mean 'num_segments'\?.*\.$"
    ) as error:
        parameters(namespace("num_segmets = 9", num_segmets=9))
    assert error.value._render_traceback_() == [f"UserError: {error.value}"]


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
    yield InteractiveShell(cache_size=0)  # else a reset collects garbage, which takes longer than the rest
    plt.close("all")


def error_in(code: list[str], shell: InteractiveShell) -> BaseException | None:
    """What stops the cells of a notebook; the kernel is this process."""
    shell.reset()
    for lines in code:
        with capture_output():
            result = shell.run_cell(lines, store_history=True)
        if error := result.error_before_exec or result.error_in_exec:
            return error
    return None


def error_of(
    name: str, source: str, given: dict[str, Any], own: dict[str, str], shell: InteractiveShell
) -> BaseException | None:
    """What stops a notebook that is run on a source with some parameters."""
    given = given | {"dataset": own.get(source, source)} | ({"foreground": "red,green"} if source == "folder" else {})
    cells = code_cells(read(next(path for path in NOTEBOOKS if path.stem.startswith(name))))
    place = next(i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", [])) + 1
    code = [cell.source for cell in cells]
    code.insert(place, "\n".join([INJECTED, *(f"{key} = {value!r}" for key, value in given.items())]))
    return error_in(code, shell)


def test_it_takes_parameters_as_text_yaml_and_file_and_leaves_the_caller_s_folder_as_it_is(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As papermill writes them; the build of the book has papermill run each notebook in a foreign folder."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("more.yaml").write_text(yaml.safe_dump({"num_test": 32, "momentum": 0.5, "paradigms": ["soft", "hybrid"]}))
    path = next(path for path in NOTEBOOKS if path.stem.startswith("03_"))
    given = {"num_train": "64", "num_validation": "32", "epochs": "2", "learning_rates": "[0.05]", "paper_split": "no"}
    options = [word for name, value in given.items() for word in ("-p", name, value)]
    command = [str(path), "out.ipynb", "--prepare-only", *options, "-y", "{seeds: [3]}", "-f", "more.yaml"]
    done = CliRunner().invoke(papermill, command)
    assert done.exit_code == 0, done.output
    assert error_in([cell.source for cell in code_cells(read(Path("out.ipynb")))], shell) is None
    assert shell.user_ns["experiment"].task.num_test == 32 and shell.user_ns["experiment"].seeds == (3,)
    assert {entry.name for entry in folder.iterdir()} == {"more.yaml", "out.ipynb"}


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


class Checked(Exception):
    """The parameters of a notebook are valid; nothing is computed."""

    def _render_traceback_(self) -> list[str]:
        return []


def test_every_source_takes_what_is_left_as_it_is(
    own: dict[str, str], shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 and empty are each source's own value."""

    def checked(*given: Any) -> None:
        parameters(*given)
        raise Checked

    monkeypatch.setattr("fcamlib.notebook.parameters", checked)
    needed = {"series": {"window_length": 12}}
    for name, source in dict.fromkeys((name, source) for name, source, _ in CASES):
        error = error_of(name, source, needed.get(source.split()[-1], {}), own, shell)
        assert isinstance(error, Checked), (name, source, error)
