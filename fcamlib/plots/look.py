"""The style of every figure, its files, and the record of how it was made."""

import datetime
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text
from PIL import Image

from fcamlib import paradigms, paths
from fcamlib.errors import UserError
from fcamlib.provenance import figure_record, how_made

P = ParamSpec("P")

INK = "#1a1c20"
FAINT_INK = "#50545c"
RULE = "#c9ccd2"
CARD = "#ffffff"
PAGE_WIDTH = 6.4  # inches; at this width 10 pt type stays legible when a phone scales the figure to 350 px
BODY_SIZE = 10.0  # points
NOTE_SIZE = 9.0  # points
SAVED_DPI = 200.0
CANVASES: dict[str, Any] = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG}
DOT: dict[str, Any] = {"ls": "", "marker": "o", "ms": 2.8, "mew": 0.0, "alpha": 0.7}  # one seed
PALETTE_ERROR = 0.3  # of 255: largest mean error, over pixels and channels, of a palette of 256 colours
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]*")
# DejaVu Sans ships with matplotlib, so widths are the same on every machine; it lacks Chinese, Japanese and Korean.
WIDE_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Hiragino Sans", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic")


@contextmanager
def style() -> Iterator[None]:
    """Context for drawing and saving figures with this project's settings, regardless of the user's configuration.

    Characters missing from all fonts are drawn as boxes, without a warning.
    """
    installed = {font.name for font in fontManager.ttflist}
    fonts = ["DejaVu Sans", *(name for name in WIDE_FONTS if name in installed)]
    ours: list[str | dict[str, Any]] = ["default", "fcamlib.plots.fcam", {"font.family": fonts}]
    with matplotlib.style.context(ours), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def rendered(figure: Figure, file_format: str, metadata: Mapping[str, Any], dpi: float = SAVED_DPI) -> bytes:
    """The figure's bytes, drawn once; `savefig` would draw twice to fix the layout, as `styled` has done."""
    buffer, canvas, usual = BytesIO(), figure.canvas, figure.dpi
    with style():
        figure.dpi = dpi
        getattr(CANVASES[file_format](figure), f"print_{file_format}")(buffer, metadata=metadata)
    figure.dpi = usual
    figure.set_canvas(canvas)
    return buffer.getvalue()


class PageFigure(Figure):
    """A figure that notebooks display as a PNG if it is a cell's last value, without pyplot's global state."""

    def _repr_png_(self) -> bytes:
        """The PNG stored in a notebook, with 256 colours if the difference is invisible."""
        full = Image.open(BytesIO(rendered(self, "png", {"Software": None}, self.dpi))).convert("RGB")
        few = full.quantize(256, dither=Image.Dither.NONE)
        error = np.abs(np.asarray(few.convert("RGB"), dtype=float) - np.asarray(full)).mean()
        buffer = BytesIO()
        (few if error < PALETTE_ERROR else full).save(buffer, "PNG", optimize=True)
        return buffer.getvalue()


def styled(draw: Callable[P, PageFigure]) -> Callable[P, PageFigure]:
    """Decorator: draw in the project's style and fix the layout, so that every save writes the same bytes."""

    @wraps(draw)
    def draw_in_style(*args: P.args, **kwargs: P.kwargs) -> PageFigure:
        with style():
            figure = draw(*args, **kwargs)
            for text in figure.findobj(Text):  # invalid characters, for example from a folder's name, cannot be saved
                text.set_text(text.get_text().encode("utf-8", "replace").decode())
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        return figure

    return draw_in_style


@styled
def empty_card() -> PageFigure:
    """A figure that says why it is empty."""
    figure = PageFigure(figsize=(PAGE_WIDTH, 0.8))
    sentence = "Nothing to draw: the data do not say which segments are the foreground."
    figure.text(0.02, 0.5, sentence, va="center")
    return figure


def paradigm_order(names: Iterable[object]) -> list[str]:
    """Distinct names: paradigms in order of registration, then schedules, then all others."""
    found = list(dict.fromkeys(map(str, names)))
    known = [*paradigms.PARADIGMS, *paradigms.SCHEDULES]
    return sorted(found, key=lambda name: known.index(name) if name in known else len(known))


def by_paradigm(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same items in the order used by all figures."""
    return {name: values[name] for name in paradigm_order(values)}


def require_columns(table: pd.DataFrame, field: str, columns: Sequence[str]) -> None:
    """Refuse a table that is empty or lacks a required column."""
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise UserError(f"{field} lacks the column {missing[0]!r}: give the columns {', '.join(columns)}.")
    if table.empty:
        raise UserError(f"{field} has no rows: give at least one.")


def save(fig: Figure, name: str, folder: str | os.PathLike[str], provenance: Mapping[str, object]) -> Path:
    """Write `<name>.svg`, `<name>.png` and, with the provenance, `<name>.json`, all or none; return the SVG's path.

    Saving the same figure again gives the same bytes.
    """
    if NAME_PATTERN.fullmatch(name) is None:
        raise UserError(f"name is {name!r}: use lower-case letters, digits, hyphens and underscores.")
    record = json.dumps(dict(provenance), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    contents = {
        "png": rendered(fig, "png", {"Software": None}),
        "svg": rendered(fig, "svg", {"Creator": None, "Date": None, "Title": name}),
        "json": (record + "\n").encode(),
    }
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{name}.", dir=target) as parts:
            for ending, content in contents.items():
                Path(parts, ending).write_bytes(content)
            for ending in contents:  # no file is replaced if the disk is too full for all of them
                Path(parts, ending).replace(target / f"{name}.{ending}")
    except OSError as error:
        fault = f"the figure '{name}' cannot be written into '{target}' ({error.strerror})"
        raise UserError(f"{fault}: set FCAM_FIGURES to a writable folder with enough space.") from None
    return target / f"{name}.svg"


def show(fig: Figure, name: str, results: Any = ()) -> None:
    """Save the figure in `paths.figures_dir()` and display it with a folded note on how it was made.

    `results` are its source: a stored result, several, or a mapping from titles to results; empty if the notebook
    computed the data. A mapping with the key "computed" is used as the record itself.
    """
    from IPython.display import display

    record = _record(name, results)
    save(fig, name, paths.figures_dir(), record)
    display(fig)
    text = f"how it was made: {record['rerun'] or 'outside of the notebooks'}"
    display({"text/plain": text, "text/html": how_made(record, name)}, raw=True)


def _record(name: str, results: Any) -> dict[str, Any]:
    """The provenance of a figure: notebook, results with commit and date, parameters, and the command."""
    stem, values, changed = _session(name)
    own: Mapping[str, Any] = results if isinstance(results, Mapping) and "computed" in results else {}
    groups: dict[str, list[Any]] = dict(results) if isinstance(results, Mapping) and not own else {}
    for result in () if groups or own else results if isinstance(results, Iterable) else (results,):
        groups.setdefault(result.summary["title"], []).append(result)
    record: dict[str, Any] = figure_record(stem, groups, parameters=changed) | {"parameters": values}
    if not stem:
        record |= {"notebook": "", "rerun": ""}
    if not groups:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        here = {"data": "what is shown", "recorded": False, "commits": [paths.commit()], "dates": [today]}
        record["computed"] = [here]
    return record | dict(own)


def parameters_of(path: Path) -> dict[str, Any]:
    """The parameters of a notebook of this checkout: its own, and those that papermill put in their place."""
    values: dict[str, Any] = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if {"parameters", "injected-parameters"} & set(cell["metadata"].get("tags", ())):
            exec("".join(cell["source"]), {}, values)  # literals
    values.pop("__annotations__", None)
    return values


def _session(figure: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The notebook of a figure, its parameters in this session, and those that differ from its defaults."""
    from IPython.core.getipython import get_ipython

    shell, root = get_ipython(), paths.checkout()
    names = {} if shell is None else shell.user_ns
    for path in sorted((root / "notebooks").glob("*.ipynb")) if names and root else ():
        if re.search(rf'plots\.show\(\w+, \\"{figure}\\"', path.read_text("utf-8")):
            usual = parameters_of(path)
            injected = "\n".join(source for source in names.get("In", ()) if source.startswith("# Parameters"))
            wanted = [*usual, *re.findall(r"^(\w+) = ", injected, re.MULTILINE)]
            given = {name: names[name] for name in wanted if name in names}
            # As a cell would state them: ranges and arrays as lists, numpy's numbers as plain ones.
            values = json.loads(json.dumps(given, default=lambda v: [*v] if np.iterable(v) else v.tolist()))
            return path.stem, values, {n: v for n, v in values.items() if n not in usual or str(v) != str(usual[n])}
    return "", {}, {}
