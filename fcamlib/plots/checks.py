"""Checks of what the figures are given; each failure is one sentence that names the field and what to do."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped
from numpy.typing import ArrayLike

from fcamlib.plots.look import PARADIGM_STYLE

Value = TypeVar("Value")


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as an error shows it.

    Parameters
    ----------
    shape : tuple of int
        Sizes of the axes.

    Returns
    -------
    str
        Such as "(5, 4)".
    """
    return "(" + ", ".join(map(str, shape)) + ")"


def paradigm_order(names: Iterable[object], field: str) -> list[str]:
    """Return the paradigms that occur, in the order all figures use.

    Parameters
    ----------
    names : iterable
        Code names, possibly repeated.
    field : str
        Where they come from, for the error.

    Returns
    -------
    list of str
        Distinct names in the order soft, hard, lvml, hybrid; at least one.
    """
    found = list(dict.fromkeys(names))
    for name in found:
        if name not in PARADIGM_STYLE:
            raise ValueError(f"{field} has the unknown paradigm {name!r}; use one of {', '.join(PARADIGM_STYLE)}.")
    if not found:
        raise ValueError(f"{field} is empty; give at least one of the paradigms {', '.join(PARADIGM_STYLE)}.")
    return [name for name in PARADIGM_STYLE if name in found]


def by_paradigm(values: Mapping[str, Value], field: str) -> dict[str, Value]:
    """Return a mapping in the paradigms' order.

    Parameters
    ----------
    values : mapping
        Keys are code names.
    field : str
        The mapping's name, for the error.

    Returns
    -------
    dict
        The same items, soft, hard, lvml, hybrid.
    """
    return {name: values[name] for name in paradigm_order(values, field)}


def same_paradigms(values: Mapping[str, object], field: str, wanted: Collection[str]) -> None:
    """Refuse a mapping whose paradigms differ from those of the figure.

    Parameters
    ----------
    values : mapping
        Keys are code names.
    field : str
        The mapping's name, for the error.
    wanted : collection of str
        The figure's paradigms.
    """
    if set(values) != set(wanted):
        raise ValueError(
            f"{field} has the paradigms {', '.join(map(str, values)) or 'none'}; "
            f"give exactly those of the figure: {', '.join(wanted)}."
        )


def array_within(
    values: ArrayLike, field: str, shape: tuple[int | None, ...], low: float, high: float
) -> Float[np.ndarray, "..."]:
    """Return finite numbers of a wanted shape and range.

    Parameters
    ----------
    values : array_like
        Numbers.
    field : str
        Their name, for the error.
    shape : tuple of int or None
        Wanted size of each axis; None accepts any size from 1.
    low, high : float
        Allowed range, ends included.

    Returns
    -------
    numpy.ndarray
        The values as float64.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{field} is not an array of numbers; give floats in [{low:g}, {high:g}].") from error
    require_shape(array, field, shape)
    if not np.isfinite(array).all() or array.min() < low or array.max() > high:
        raise ValueError(
            f"{field} runs from {array.min():g} to {array.max():g}; give finite values in [{low:g}, {high:g}]."
        )
    return array


def require_shape(array: Shaped[np.ndarray, "..."], field: str, shape: tuple[int | None, ...]) -> None:
    """Refuse an array of another shape.

    Parameters
    ----------
    array : numpy.ndarray
        Any values.
    field : str
        Their name, for the error.
    shape : tuple of int or None
        Wanted size of each axis; None accepts any size from 1.
    """
    fits = array.ndim == len(shape) and all(
        size == wanted if wanted is not None else size >= 1 for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted_text = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
        raise ValueError(f"{field} has shape {shape_text(array.shape)}; give an array of shape {wanted_text}.")


def pictures(segments: ArrayLike) -> Float[np.ndarray, "E M H W 3"]:
    """Return segments as colour pictures.

    Parameters
    ----------
    segments : array_like
        (E, M, H, W) grey or (E, M, H, W, 3) colour; uint8 in 0..255 or floats in [0, 1].

    Returns
    -------
    numpy.ndarray
        Float64 in [0, 1].
    """
    array = np.asarray(segments)
    if array.ndim not in (4, 5) or 0 in array.shape or (array.ndim == 5 and array.shape[-1] != 3):
        raise ValueError(
            f"segments has shape {shape_text(array.shape)}; give pictures as (E, M, H, W) or (E, M, H, W, 3)."
        )
    if array.dtype == np.uint8:
        scaled = array / 255.0
    elif np.issubdtype(array.dtype, np.floating):
        scaled = array_within(array, "segments", array.shape, 0.0, 1.0)
    else:
        raise ValueError(f"segments has dtype {array.dtype}; give uint8 in 0..255 or floats in [0, 1].")
    return scaled if array.ndim == 5 else np.repeat(scaled[..., None], 3, axis=-1)  # (E, M, H, W, 3)


def foreground_mask(foreground: ArrayLike, num_instances: int, num_segments: int) -> Bool[np.ndarray, "E M"]:
    """Return the foreground truth.

    Parameters
    ----------
    foreground : array_like
        (E, M) booleans.
    num_instances, num_segments : int
        E and M of the pictures.

    Returns
    -------
    numpy.ndarray
        At least one true in each row.
    """
    mask = np.asarray(foreground)
    require_shape(mask, "foreground", (num_instances, num_segments))
    if mask.dtype != np.bool_:
        raise ValueError(f"foreground has dtype {mask.dtype}; give booleans, true where a segment decides the label.")
    if not mask.any(axis=1).all():
        bare = int(np.flatnonzero(~mask.any(axis=1))[0])
        raise ValueError(f"foreground marks no segment in instance {bare}; mark at least one in each.")
    return mask


def class_indices(values: ArrayLike, field: str, num_instances: int, num_classes: int) -> list[int]:
    """Return class numbers, one an instance.

    Parameters
    ----------
    values : array_like
        (E,) integers.
    field : str
        Their name, for the error.
    num_instances : int
        E.
    num_classes : int
        K; allowed values are 0..K-1.

    Returns
    -------
    list of int
        The classes.
    """
    array = np.asarray(values)
    require_shape(array, field, (num_instances,))
    if not np.issubdtype(array.dtype, np.integer) or array.min() < 0 or array.max() >= num_classes:
        raise ValueError(f"{field} must hold integers in 0..{num_classes - 1}, one for each name in label_names.")
    return [int(value) for value in array]


def require_columns(table: pd.DataFrame, field: str, columns: Sequence[str]) -> None:
    """Refuse a table that is empty or lacks a column.

    Parameters
    ----------
    table : pandas.DataFrame
        Any table.
    field : str
        Its name, for the error.
    columns : sequence of str
        Columns the figure reads.
    """
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise ValueError(f"{field} lacks the column {missing[0]!r}; give the columns {', '.join(columns)}.")
    if table.empty:
        raise ValueError(f"{field} has no rows; give at least one.")
