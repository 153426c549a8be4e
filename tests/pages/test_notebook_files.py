"""Parameters of a notebook from outside: the class that checks them, their hash, and a command that gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figure_notes
import nbformat
import notebook_files
import pytest
from nbformat import NotebookNode, v4

from fcamlib.config import Experiment, FlowExperiment, StudyExperiment
from fcamlib.errors import UserError

Reader = Callable[[str], tuple[str, dict[str, Any]]]

ROOT = Path(__file__).resolve().parents[2]
PATH = "notebooks/02_accuracy_and_saif.ipynb"
HERE = {"commit": "0123456789ab+", "date": "2030-01-02"}


def notebook(name: str = "02_accuracy_and_saif") -> NotebookNode:
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


def record(*computed: dict[str, Any], data: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"notebook": PATH, "data": list(data), "computed": list(computed)}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("02_accuracy_and_saif", Experiment),
        ("05_gradient_flow", FlowExperiment),
        ("12_hybrid_at_scale", StudyExperiment),
    ],
)
def test_parameters_are_checked_by_the_class_that_the_notebook_names(name: str, kind: type) -> None:
    assert type(notebook_files.checked(notebook(name), {})) is kind


def test_defaults_of_the_notebook_and_not_of_the_class_are_filled_in() -> None:
    # The class has one seed by default, the notebook five.
    assert Experiment.of({}).seeds != notebook_files.checked(notebook(), {}).seeds == (0, 1, 2, 3, 4)  # type: ignore[attr-defined]


def test_an_unknown_name_is_refused_as_in_the_notebook() -> None:
    with pytest.raises(UserError, match=r"'num_segmets' is not a parameter: did you mean 'num_segments'\?"):
        notebook_files.checked(notebook(), {"num_segmets": 9})


def test_the_hash_is_of_canonical_json() -> None:
    text = (
        '{"batch_size":40,"end_times":[1000.0,400000.0],"epochs":20,"momentum":0.9,"num_classes":[20,1000],'
        '"num_segments":[20,100],"num_train":800,"seeds":[0,1,2,3,4]}'
    )
    assert notebook_files.digest(FlowExperiment()) == hashlib.sha256(text.encode()).hexdigest()[:8]


def test_equal_parameters_have_equal_hashes_however_they_are_written() -> None:
    digits = {
        notebook_files.digest(notebook_files.checked(notebook(), given))
        for given in ({"seeds": "[0,1]", "num_segments": "9"}, {"seeds": [0, 1], "num_segments": 9, "momentum": 0.9})
    }
    assert len(digits) == 1
    assert digits != {notebook_files.digest(notebook_files.checked(notebook(), {"seeds": [0, 1], "num_segments": 8}))}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"num_segments": 9, "seeds": [3, 4]},
        {"foreground": "airplane, my dog's,it's", "dataset": "folder:a b/$HOME'"},
        {"learning_rates": [1e-05, 0.1], "paper_split": True, "momentum": 0.5},
        {"dataset": "cifar10", "hard_learning_rates": [0.02, 0.01], "keep": "best", "precision": "float32"},
    ],
)
def test_papermill_reads_the_same_parameters_from_the_command(given: dict[str, Any], papermill_reads: Reader) -> None:
    command = notebook_files.command(PATH, notebook(), given)
    path, read = papermill_reads(command)
    assert path == PATH and set(read) == set(given)
    assert notebook_files.checked(notebook(), read) == notebook_files.checked(notebook(), given)


def test_lists_of_networks_are_read_as_they_were_given(papermill_reads: Reader) -> None:
    given = {"focus_networks": ["mlp:2x32:layer", "linear"], "each_learning_rate": [0.1]}
    ablation = notebook("13_architecture_ablation")
    _, read = papermill_reads(notebook_files.command("x.ipynb", ablation, given))
    assert notebook_files.checked(ablation, read) == notebook_files.checked(ablation, given)


def test_what_equals_a_default_is_left_out_of_the_command() -> None:
    given = {"seeds": [0, 1, 2, 3, 4], "dataset": "digits", "epochs": 3}
    assert notebook_files.command(PATH, notebook(), given) == f"papermill {PATH} out.ipynb -p epochs 3"


def test_saved_figures_of_a_cell() -> None:
    assert notebook_files.saved_figures(
        'plots.save(fig, "one", folder, source)\nplots.save(fig, "two", folder, {})'
    ) == [
        "one",
        "two",
    ]
    assert notebook_files.saved_figures("fig = plots.curves(runs)\nstore.save(fig, 'three')") == []


def test_an_executed_notebook_tells_its_defaults_from_what_it_was_given() -> None:
    cells = [
        v4.new_code_cell('seeds: list = [0]  # seeds\ndataset = "digits"', metadata={"tags": ["parameters"]}),
        v4.new_code_cell("# Parameters\nseeds = [1, 2]\n", metadata={"tags": ["injected-parameters"]}),
    ]
    executed = v4.new_notebook(cells=cells)
    assert notebook_files.default_parameters(executed) == {"seeds": [0], "dataset": "digits"}
    assert notebook_files.given_parameters(executed) == {"seeds": [1, 2]}


def test_a_note_tells_records_from_what_was_computed_and_groups_what_has_one_origin() -> None:
    kept = {"recorded": True, "commits": ["aaaaaaaaaaaa", "bbbbbbbbbbbb+"], "dates": ["2029-01-01", "2029-02-01"]}
    live = {"recorded": False, "commits": [""], "dates": ["2029-03-01"]}
    entries = [{"data": "one", **kept}, {"data": "<two>", **kept}, {"data": "three", **live}]
    text = figure_notes.note(record(*entries), notebook(), {}, HERE)
    recorded = "recorded 2029-01-01 to 2029-02-01, commit <code>aaaaaaa</code>, <code>bbbbbbb+</code>"
    assert f"one; &lt;two&gt;: {recorded}; three: computed 2029-03-01, commit <code>none</code>." in text


def test_what_is_kept_nowhere_has_commit_and_date_of_the_build() -> None:
    text = figure_notes.note(record(data=("the flow",)), notebook(), {}, HERE)
    assert "the flow: computed 2030-01-02, commit <code>0123456+</code>." in text


def test_a_command_with_signs_of_html_is_shown_as_it_is() -> None:
    given = {"dataset": "folder:a&b<c", "foreground": "x,y"}
    text = figure_notes.note(record(data=("x",)), notebook(), given, HERE)
    assert "folder:a&amp;b&lt;c" in text and "\n\n" not in text, "a blank line would end the block of HTML"
