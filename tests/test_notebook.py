"""Parameters of a notebook: fields from its names, and nothing unknown from papermill's cell."""

from __future__ import annotations

from typing import Any

import pytest

from fcamlib.config import Grid
from fcamlib.errors import UserError
from fcamlib.notebook import parameters


def namespace(injected: str = "", **names: Any) -> dict[str, Any]:
    """What `globals()` of a notebook holds: names, and the source of each cell that has run."""
    cells = ["", "seeds = [0]", f"# Parameters\n{injected}\n"] if injected else ["", "seeds = [0]"]
    return {"In": cells, "Out": {}, **names}


def test_fields_are_taken_and_other_names_left_alone() -> None:
    found = parameters(namespace(seeds="[3, 4]", num_segments="7", fig=object(), store=pytest, momentum=0.5))
    assert isinstance(found, Grid)
    assert found.seeds == (3, 4)
    assert found.task.num_segments == 7  # type: ignore[attr-defined]
    assert found.momentum == 0.5


def test_a_name_that_papermill_was_given_must_be_a_field() -> None:
    with pytest.raises(UserError, match=r"'num_segmets' is not a parameter: did you mean 'num_segments'\?"):
        parameters(namespace("num_segmets = 9", num_segmets=9))


def test_a_field_that_the_parameter_cell_does_not_list_is_taken() -> None:
    assert parameters(namespace('precision = "float32"', precision="float32")).precision == "float32"


def test_running_the_first_cells_again_does_not_refuse_names_made_since() -> None:
    later = namespace("epochs = 3", epochs=3, runs=[1, 2], title="x")
    assert parameters(later).epochs == 3


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num_segments", 1, "num_segments=1"),
        ("dataset", "imagenet", "dataset='imagenet'"),
        ("paradigms", "soft,medium", "medium"),
        ("paper_split", "perhaps", "paper_split='perhaps'"),
        ("learning_rates", "-0.1", "learning_rates"),
    ],
)
def test_a_wrong_value_is_one_sentence_and_shown_without_a_traceback(name: str, value: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        parameters(namespace(f"{name} = {value!r}", **{name: value}))
    assert said in str(error.value) and str(error.value).endswith(".")
    assert error.value._render_traceback_() == [f"UserError: {error.value}"]
