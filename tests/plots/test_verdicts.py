"""The figure of verdicts: each mark stands at its claim and task and says by its shape what its colour says."""

from collections.abc import Callable

import pandas as pd
import pytest

from fcamlib import plots
from fcamlib.plots.verdicts import LINE_LENGTH, VERDICT_STYLE

LONG = "a task whose name is so long that it cannot stand beside the marks, 30,000 mosaics"


def a_frame() -> pd.DataFrame:
    verdicts = [["holds", "fails", ""], ["undecided", "", "holds"]]
    return pd.DataFrame(verdicts, index=["digits", LONG], columns=["D1", "S1", "H1"])


def test_each_verdict_is_a_mark_at_its_claim_and_task(by_gid: Callable) -> None:
    frame = a_frame()
    fig = plots.verdict_matrix(frame)
    drawn = 0
    for row, task in enumerate(frame.index):
        for column, claim in enumerate(frame.columns):
            if verdict := frame.loc[task, claim]:
                (mark,) = by_gid(fig, f"{verdict}-{row}-{column}")
                assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (column, row)
                assert mark.get_marker() == VERDICT_STYLE[verdict]["marker"]
                drawn += 1
    assert drawn == len([line for line in fig.axes[0].lines if line.get_gid()]) == 4
    place = LONG.rindex(" ", 0, LINE_LENGTH + 1)
    labels = [label.get_text() for label in fig.axes[0].get_yticklabels()]
    assert labels[0] == "digits" and labels[1].split("\n") == [LONG[:place], LONG[place + 1 :]]
    assert fig.axes[0].yaxis_inverted(), "the first task stands on top"


def test_verdicts_can_be_told_apart_without_colour() -> None:
    looks = [(style["marker"], style["markerfacecolor"] == style["color"]) for style in VERDICT_STYLE.values()]
    assert len(set(looks)) == len(VERDICT_STYLE)


def test_a_strange_verdict_or_no_task_is_refused() -> None:
    with pytest.raises(ValueError, match="'maybe'; allowed are holds, undecided, fails"):
        plots.verdict_matrix(a_frame().replace("fails", "maybe"))
    with pytest.raises(ValueError, match="at least one task"):
        plots.verdict_matrix(a_frame().iloc[:0])


def test_verdicts_are_legible(assert_legible: Callable) -> None:
    assert_legible(plots.verdict_matrix(a_frame()))
