"""Parameters of a notebook: fields from its names, and nothing unknown from papermill's cell."""

from __future__ import annotations

from typing import Any

import pytest

from fcamlib.config import Grid, Mosaics
from fcamlib.errors import UserError
from fcamlib.notebook import effective, parameters


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


def test_the_table_of_parameters_shows_the_values_that_are_used() -> None:
    shown = effective(parameters(namespace(num_train=0, epochs=0, seeds="3,4")))["value"]
    expected = {"num_train": "2000", "epochs": "20", "switch_epoch": "10", "seeds": "3, 4", "foreground": "0, 1, 2"}
    assert shown[list(expected)].to_dict() == expected


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num_segmets", 9, "'num_segmets' is not a parameter: did you mean 'num_segments'?"),
        ("num_segments", 1, "num_segments=1 is not allowed"),
        ("dataset", "imagenet", "dataset='imagenet' is unknown"),
    ],
)
def test_a_wrong_name_or_value_is_one_sentence_and_shown_without_a_traceback(name: str, value: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        parameters(namespace(f"{name} = {value!r}", **{name: value}))
    assert str(error.value).startswith(said) and str(error.value).endswith(".")
    assert error.value._render_traceback_() == [f"UserError: {error.value}"]
