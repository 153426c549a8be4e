"""Time series: generated motifs decide the label and nothing else does; a user's file is read as documented."""

from pathlib import Path
from typing import Any

import numpy as np

from fcamlib.config import Series
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.data.series import series_task, waveforms

SIZES = {"num_segments": 5, "num_channels": 3, "num_classes": 4, "num_train": 60, "num_validation": 7, "num_test": 11}


def motifs(seed: int = 0, **changes: Any) -> SDCTask:
    settings: dict[str, Any] = {**SIZES, "window_length": 20, "noise": 0.0, "distractors": 0.0, **changes}
    return series_task(Series(source="motifs", **settings), seed)


def windows_of(data: SDCData) -> np.ndarray:
    return data.bank.values.numpy()[data.segments.numpy()]  # (n, M, C, T)


def matched(windows: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Largest correlation of each window, its slow drift taken out, with each waveform at any offset: (n, M, W)."""
    length = shapes.shape[2]
    found = np.full((*windows.shape[:2], len(shapes)), -np.inf)
    basis = np.linalg.qr(np.vander(np.linspace(-1, 1, length), 3))[0]
    flat = shapes - np.einsum("wct,tp,sp->wcs", shapes, basis, basis)
    flat /= np.linalg.norm(flat, axis=(1, 2), keepdims=True)
    for start in range(windows.shape[3] - length + 1):
        part = windows[..., start : start + length]
        rest = part - np.einsum("nmct,tp,sp->nmcs", part, basis, basis)
        found = np.maximum(found, np.einsum("nmct,wct->nmw", rest, flat))
    return found


def test_the_motif_stands_in_the_foreground_window_and_names_the_label() -> None:
    shapes = waveforms(8, 3, 10)
    for data in motifs().splits.values():
        score = matched(windows_of(data), shapes)
        np.testing.assert_array_equal(score.max(axis=2).argmax(axis=1), data.foreground.numpy().argmax(axis=1))
        place = data.foreground.numpy().argmax(axis=1)
        np.testing.assert_array_equal(score[np.arange(len(data)), place].argmax(axis=1), data.label.numpy())
        assert (data.foreground.sum(dim=1) == 1).all()


def test_distractors_are_of_other_waveforms() -> None:
    data = motifs(distractors=1.0).splits["train"]
    score = matched(windows_of(data), waveforms(8, 3, 10))
    best, foreground = score.argmax(axis=2), data.foreground.numpy()
    np.testing.assert_array_equal(best[foreground], data.label.numpy())
    assert (best[~foreground] >= 4).all() and set(best[~foreground].tolist()) == {4, 5, 6, 7}


# --- a user's file ----------------------------------------------------------------------------------------------------


def content() -> dict[str, Any]:
    """Twenty series of 23 samples and two channels, each with one foreground sample."""
    draws = np.random.default_rng(5)
    series = draws.normal([[[3.0], [-50.0]]], [[[2.0], [9.0]]], (20, 2, 23)).astype(np.float32)
    foreground = np.arange(23) == np.arange(20)[:, None]
    return {"series": series, "label": np.arange(20) % 2, "foreground": foreground, "split": np.arange(20) % 3}


def loaded(path: Path, arrays: dict[str, Any], window_length: int = 5) -> SDCTask:
    np.savez(path / "mine.npz", **arrays)
    return series_task(Series(source=f"series:{path / 'mine.npz'}", window_length=window_length), seed=0)


def test_series_are_cut_in_order_and_a_window_with_a_foreground_sample_is_foreground(tmp_path: Path) -> None:
    arrays = content()
    made = loaded(tmp_path, arrays)
    chosen = np.flatnonzero(arrays["split"] == 0)
    series = arrays["series"][chosen][..., :20].astype(np.float64)
    expected = (series - series.mean(axis=(0, 2))[:, None]) / series.std(axis=(0, 2))[:, None]
    windows = np.stack(np.split(expected, 4, axis=2), axis=1)  # (n, M, C, T)
    train = made.splits["train"]
    np.testing.assert_allclose(windows_of(train), windows, atol=1e-5)
    np.testing.assert_array_equal(train.foreground.numpy(), np.arange(4) == chosen[:, None] // 5)
    assert [len(data) for data in made.splits.values()] == [7, 7, 6] and train.mask is None
    assert made.class_names == ("0", "1") and made.title == "mine"


def test_padding_is_masked_and_neither_it_nor_test_series_count_in_the_standardisation(tmp_path: Path) -> None:
    arrays = content() | {"length": np.array([5, 9, 14, 23] * 5)}
    before = loaded(tmp_path, arrays)
    mask = np.concatenate([before.splits[s].mask.numpy() for s in before.splits])  # type: ignore[union-attr]
    order = np.concatenate([np.flatnonzero(arrays["split"] == number) for number in range(3)])
    np.testing.assert_array_equal(mask.sum(axis=1), np.array([1, 1, 2, 4] * 5)[order])
    for row, length in zip(arrays["series"], arrays["length"], strict=True):
        row[:, 5 * (length // 5) :] = 1e7
    arrays["series"][arrays["split"] == 2] *= 1e6
    after = loaded(tmp_path, arrays)
    for split in ("train", "validation"):
        kept = before.splits[split].mask.numpy()  # type: ignore[union-attr]
        np.testing.assert_array_equal(windows_of(before.splits[split])[kept], windows_of(after.splits[split])[kept])
    assert np.abs(windows_of(after.splits["test"])).max() > 1e3


def test_ready_windows_names_of_classes_and_a_constant_channel(tmp_path: Path) -> None:
    windows = np.random.default_rng(1).normal(size=(10, 3, 2, 12))
    windows[:, :, 1] = 4.0
    made = loaded(tmp_path, {"windows": windows, "label": np.array(["wake", "sleep"] * 5)}, 0)
    assert made.class_names == ("sleep", "wake") and [len(data) for data in made.splits.values()] == [6, 2, 2]
    for data in made.splits.values():
        assert (windows_of(data)[:, :, 1] == 0).all() and not data.foreground.any()
        assert set(data.label.tolist()) == {0, 1}
