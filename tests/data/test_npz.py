"""Series and bags, generated and from a user's .npz file: read as documented, standardised by training data alone."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcamlib.config import Bags, Series
from fcamlib.data import files
from fcamlib.data.sdc import SDCData, SDCTask
from fcamlib.data.vectors import SEPARATION, bags_task, centres, num_repeats_and_folds, series_task, waveforms
from fcamlib.errors import DataError

Arrays = dict[str, Any]


def bags() -> Arrays:
    """Twenty bags of 1 to 5 instances, mixed up; feature 0 is the instance's row, feature 1 its bag; 2 x 5 folds."""
    draws = np.random.default_rng(3)
    bag = draws.permutation(np.repeat(np.arange(20), np.arange(20) % 5 + 1))
    features = np.stack([np.arange(60.0), bag, draws.normal(5, 100, 60)], axis=1)
    fold = np.stack([draws.permutation(np.arange(20) % 10 // 2), np.arange(20) // 4])
    return {"features": features, "bag": bag, "label": np.arange(20) % 2, "fold": fold}


def series() -> Arrays:
    """Twenty series of 23 samples and two channels, each with one foreground sample."""
    values = np.random.default_rng(5).normal([[[3.0], [-50.0]]], [[[2.0], [9.0]]], (20, 2, 23))
    foreground = np.arange(23) == np.arange(20)[:, None]
    return {"series": values, "label": np.arange(20) % 2, "foreground": foreground, "split": np.arange(20) % 3}


def windows() -> Arrays:
    return {"windows": np.random.default_rng(5).normal(3, 2, (20, 4, 2, 5)), "label": np.arange(20) % 2}


def loaded(path: Path, arrays: Arrays, seed: int = 0, **config: Any) -> SDCTask:
    np.savez(path / "mine.npz", **{name: array for name, array in arrays.items() if array is not None})
    if "bag" in arrays:
        return bags_task(Bags(source=f"bags:{path}/mine.npz", **config), seed)
    config.setdefault("window_length", 0 if "windows" in arrays else 5)
    return series_task(Series(source=f"series:{path}/mine.npz", **config), seed)


def at(index: int, value: Any, number: int) -> np.ndarray:
    return np.array([value if place == index else 0 for place in range(number)])


FAULTS: list[tuple[str, Arrays, str]] = [
    # of bags and instances
    ("bags", {"label": np.arange(22) % 2, "fold": None}, r"bag 20 is empty \(2 such\): give each an instance"),
    ("bags", {"bag": np.r_[-1, bags()["bag"][1:]]}, "bag -1 has no label"),
    ("bags", {"bag": np.zeros(59, dtype=int)}, r"'bag' has shape \(59,\), but \(N = 60\) is needed"),
    ("bags", {"features": np.zeros(())}, r"'features' has shape \(\), but \(N, D\) is needed\."),
    ("bags", {"features": np.where(np.arange(60)[:, None] == 7, np.nan, 1.0)}, r"'features' is nan at \[7, 0\] \(1 s"),
    # of folds, before the first is trained
    ("bags", {"fold": np.zeros((2, 19), dtype=int)}, r"but \(repeats = 2, bags = 20\) is needed"),
    ("bags", {"fold": np.arange(20) % 3 * 2}, "'fold' of repeat 0 holds 0, 2, 4: number the folds 0, 1, 2"),
    ("bags", {"label": at(0, "\n", 20), "fold": np.arange(20) // 4}, r"class '\\n' has no training instance"),
    # of truth
    ("bags", {"foreground": np.full(60, "False")}, "'foreground' holds <U5: give True and False, or 0 and 1"),
    ("bags", {"foreground": at(3, 0.05, 60)}, r"'foreground' is 0.05 at \[3\]"),
    # of labels
    ("bags", {"label": None}, r"has no array 'label': add it, \(bags\), whole numbers or names"),
    ("series", {"label": np.arange(19) % 2}, r"'label' has shape \(19,\), but \(n = 20\) is needed"),
    ("series", {"label": at(3, 0.5, 20)}, r"'label' is 0.5 at \[3\] \(1 such\): give whole numbers or names"),
    ("series", {"label": np.full(20, "a\n")}, r"'label' names only one class \(a\\n\): give at least two"),
    ("series", {"label": np.array([0xD800, 65] * 10, "<u4").view("<U1")}, r"cannot be read \(.*surrogates not allowed"),
    ("series", {"label": np.array([{}] * 20)}, "holds Python objects, which are not read"),
    # of series, lengths and splits
    ("series", {"windows": np.zeros((20, 4, 2, 5))}, "needs either the array 'series' or the array 'windows'"),
    ("series", {"series": np.full((20, 2, 23), 1e300)}, r"'series' is 1e\+300 at \[0, 0, 0\] \(920 such\)"),
    ("series", {"length": np.full(20, 4)}, r"series 0 has length 4: give 5 \(one window\) to 23"),
    ("series", {"split": np.array(["train", "dev"] * 10)}, r"'split' is 'dev' at \[1\] \(10 such\): give train"),
    (
        "series",
        {"split": np.arange(20) % 2},
        "no instance is left for test: give more or, if you name splits, all three",
    ),
    ("series", {"split": np.where(np.arange(20) % 2, 2, np.arange(20) % 4 // 2)}, "class '1' has no training instance"),
    ("series", {"a\nb": np.zeros(20)}, r"holds an unknown array 'a\\nb': allowed are series, foreground, label"),
]


@pytest.mark.parametrize(("kind", "changes", "said"), FAULTS)
def test_a_fault_in_the_file_is_one_sentence(kind: str, changes: Arrays, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said) as caught:
        loaded(tmp_path, {"bags": bags, "series": series, "windows": windows}[kind]() | changes)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_parameters_that_do_not_fit_the_file_are_one_sentence(tmp_path: Path) -> None:
    label = (np.arange(20) // 4 == 3).astype(int)  # one class lies in fold 3 of repeat 1 alone
    loaded(tmp_path, bags() | {"label": label}, repeat=1, fold=0)
    with pytest.raises(DataError, match="class '1' has no training instance"):  # found before the first fold trains
        num_repeats_and_folds(f"bags:{tmp_path}/mine.npz")
    few = {"features": np.zeros((18, 2)), "bag": np.arange(18), "label": np.arange(18) % 2}  # nine of each class
    for arrays, config, said in (
        (bags(), {"repeat": 2}, r"^repeat=2 is not in dataset='bags:.*mine.npz': choose 0 to 1\.$"),
        (few, {"fold": 5}, "^dataset='bags:.*npz' has 18 bags, too few for 10 folds: give more, or an array 'fold'"),
        (bags(), {"repeat": 1, "fold": 5}, r"^fold=5 has no bag in .*, repeat 1: choose one of 0, 1, 2, 3, 4\.$"),
        (series(), {"window_length": 24}, "^window_length=24 does not fit .* 23 samples: choose a length from 1 to 23"),
        (series(), {"window_length": 0}, "^window_length is needed for .* have 23 samples"),
        (windows(), {"window_length": 4}, "whose file holds windows: leave it out"),
    ):
        with pytest.raises(DataError, match=said):
            loaded(tmp_path, arrays, **config)


def test_files_that_are_none_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(tmp_path, series())
    (tmp_path / "text").write_bytes(b"x,y\n")
    with pytest.raises(DataError, match=r"'.*text' cannot be read \(.*not a zip file.*\): write it with"):
        series_task(Series(source=f"series:{tmp_path / 'text'}", window_length=5), 0)
    with pytest.raises(DataError, match=r"cannot be read \(it is not a regular file\): write it with numpy\.savez"):
        series_task(Series(source=f"series:{tmp_path}", window_length=5), 0)
    monkeypatch.setattr(files.Path, "read_text", lambda *_: "MemAvailable: 9 kB")
    monkeypatch.setattr(np.lib.format, "read_array", None)  # larger than the memory: never read
    with pytest.raises(DataError, match=r"its arrays need 0\.0 GB, but only 0\.0 GB of memory are free: give fewer"):
        loaded(tmp_path, series())


@settings(max_examples=60)
@given(st.data())
def test_no_damaged_byte_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("damaged")
    stream = io.BytesIO()
    np.savez_compressed(stream, **bags())
    content = bytearray(stream.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (path / "mine.npz").write_bytes(content[: data.draw(st.sampled_from([None, 300]))])
    try:
        bags_task(Bags(source=f"bags:{path}/mine.npz"), 0)
    except DataError as error:
        assert "\n" not in str(error) and len(str(error)) < 800


@pytest.mark.parametrize("offset", [1.7e9, -4e12])
def test_large_offsets_keep_what_the_file_resolves(tmp_path: Path, offset: float) -> None:
    """Seconds since 1970 differ by 1 in 10^9; standardised they are what they are without the offset."""
    plain, moved = bags(), bags()
    plain["features"] = np.round(100 * plain["features"])
    moved["features"] = plain["features"] + offset
    found = [loaded(tmp_path, arrays).bank.values for arrays in (plain, moved)]
    np.testing.assert_allclose(found[1], found[0], atol=2e-6)
    clock = np.arange(2_400).reshape(20, 1, 120) + int(offset)
    made = loaded(tmp_path, {"series": clock, "label": np.arange(20) % 2}, window_length=5)
    assert len(np.unique(made.bank.values)) == 2_400


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-30), (np.float32, 1e30), (np.float64, 1), (np.int64, 7)])
def test_a_constant_channel_becomes_zero_at_any_scale(tmp_path: Path, dtype: Any, scale: float) -> None:
    arrays = bags()
    varied = np.random.default_rng(0).integers(1, 50, 60)
    arrays["features"] = (np.stack([np.full(60, 7.3), varied], axis=1) * scale).astype(dtype)
    arrays["features"][arrays["bag"] == 8, 0] *= 5  # a test bag of repeat 1, fold 2
    made = loaded(tmp_path, arrays, repeat=1, fold=2).bank.values.numpy()
    assert (made[:, 0] == 0).all() and np.isfinite(made).all() and 0.5 < made[:, 1].std() < 2


def test_what_standardising_cannot_hold_is_one_sentence(tmp_path: Path) -> None:
    arrays = bags()
    arrays["features"][:, 0] = 1e-30 * np.arange(60)
    arrays["features"][arrays["bag"] == 8, 0] = 3e38
    with pytest.raises(DataError, match="a value is 1e38 standard deviations from the training mean"):
        loaded(tmp_path, arrays, repeat=1, fold=2)


def test_clouds_decide_the_label_by_their_foreground_and_nothing_else() -> None:
    sizes = {"num_segments": 9, "num_features": 12, "num_classes": 3}
    config = Bags(source="clouds", num_train=3_000, num_validation=20, num_test=30, **sizes)
    data = bags_task(config, 0).splits["train"]
    assert data.mask is not None
    mask, foreground = data.mask.numpy(), data.foreground.numpy()
    features, label = data.bank.values.numpy()[data.segments.numpy()[mask]], data.label.numpy()[np.nonzero(mask)[0]]
    nearest = ((features[:, None] - centres(6, 12)) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == label)[foreground[mask]].mean() > 0.88
    others = nearest[~foreground[mask]]
    assert (others >= 3).mean() > 0.9 and np.bincount(others, minlength=6)[3:].min() > 1_500
    np.testing.assert_allclose(np.linalg.norm(centres(6, 12), axis=1), SEPARATION)
    size, marked = mask.sum(axis=1), foreground.sum(axis=1)  # one to a quarter is foreground
    assert (marked >= 1).all() and (marked <= np.maximum(1, size // 4)).all() and not (foreground & ~mask).any()


def rows_by_bag(data: SDCData) -> list[list[int]]:
    masks = torch.ones_like(data.segments, dtype=torch.bool) if data.mask is None else data.mask
    return [sorted(row[mask].tolist()) for row, mask in zip(data.segments, masks, strict=True)]


def test_each_fold_is_the_files_own_and_splits_are_stratified_and_the_same_for_every_seed(tmp_path: Path) -> None:
    arrays = bags()
    for repeat, fold in np.ndindex(2, 5):
        made, again = (loaded(tmp_path, arrays, seed, repeat=repeat, fold=fold) for seed in (0, 7))
        of_fold, test = np.flatnonzero(arrays["fold"][repeat] == fold), made.splits["test"]
        assert rows_by_bag(test) == [np.flatnonzero(arrays["bag"] == bag).tolist() for bag in of_fold]
        assert test.label.tolist() == (of_fold % 2).tolist() and not test.foreground.any()
        assert sorted(row for data in made.splits.values() for bag in rows_by_bag(data) for row in bag) == [*range(60)]
        assert repeat == 0 or [len(made.splits[name]) for name in ("train", "validation")] == [12, 4]
        assert all(torch.equal(made.splits[name].segments, again.splits[name].segments) for name in made.splits)
        assert set(made.splits["validation"].label.tolist()) == {0, 1}
    assert num_repeats_and_folds(f"bags:{tmp_path}/mine.npz") == (2, 5)
    del arrays["fold"]
    tests = [rows_by_bag(loaded(tmp_path, arrays, fold=fold).splits["test"]) for fold in range(10)]
    assert sorted(row for bags in tests for rows in bags for row in rows) == list(range(60))
    assert rows_by_bag(loaded(tmp_path, arrays, repeat=1).splits["test"]) != tests[0]
    assert num_repeats_and_folds(f"bags:{tmp_path}/mine.npz") == (0, 10)


def test_standardisation_sees_training_bags_alone(tmp_path: Path) -> None:
    arrays = bags()
    made = loaded(tmp_path, arrays, repeat=1, fold=2)
    is_train = np.isin(np.arange(60), [row for bag in rows_by_bag(made.splits["train"]) for row in bag])
    of_train = arrays["features"][is_train].astype(np.float64)
    expected = (arrays["features"] - of_train.mean(axis=0)) / of_train.std(axis=0)
    np.testing.assert_allclose(made.bank.values.numpy(), expected, atol=1e-5)
    arrays["features"][~is_train] = 1e6
    changed = loaded(tmp_path, arrays, repeat=1, fold=2)
    np.testing.assert_array_equal(made.bank.values[is_train], changed.bank.values[is_train])


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


def test_distractors_are_of_other_waveforms_and_as_strong() -> None:
    data = motifs(distractors=1.0).splits["train"]
    score = matched(windows_of(data), waveforms(8, 3, 10))
    best, foreground = score.argmax(axis=2), data.foreground.numpy()
    np.testing.assert_array_equal(best[foreground], data.label.numpy())
    assert (best[~foreground] >= 4).all() and set(best[~foreground].tolist()) == {4, 5, 6, 7}
    strength = score.max(axis=2)
    assert abs(strength[foreground].mean() / strength[~foreground].mean() - 1) < 0.15
    share = [motifs(distractors=s, num_train=400).splits["train"] for s in (0.0, 0.25)]
    energy = [(np.diff(windows_of(d), axis=3) ** 2).mean(axis=(2, 3))[~d.foreground.numpy()] for d in share]
    assert abs((energy[1] > energy[0].max()).mean() - 0.25) < 0.05


def test_background_runs_on_from_window_to_window_and_carries_the_noise_that_was_asked_for() -> None:
    data = motifs(num_train=200).splits["train"]
    windows, foreground = windows_of(data), data.foreground.numpy()
    jump = np.abs(windows[:, 1:, :, 0] - windows[:, :-1, :, -1]).mean(axis=2)
    inside = np.abs(np.diff(windows, axis=3)).mean(axis=(2, 3))
    quiet = ~(foreground[:, 1:] | foreground[:, :-1])
    assert jump[quiet].mean() < 1.5 * inside[~foreground].mean()
    noisy = windows_of(motifs(num_train=200, noise=0.7).splits["train"])
    second = np.diff(noisy, n=2, axis=3)[~foreground]
    assert abs(second.std() / np.sqrt(6) - 0.7) < 0.02  # second differences leave white noise times sqrt(6)


# --- a user's file ----------------------------------------------------------------------------------------------------


def test_series_are_cut_in_order_and_a_window_with_a_foreground_sample_is_foreground(tmp_path: Path) -> None:
    arrays = series()
    made = loaded(tmp_path, arrays)
    chosen = np.flatnonzero(arrays["split"] == 0)
    values = arrays["series"][chosen][..., :20].astype(np.float64)
    expected = (values - values.mean(axis=(0, 2))[:, None]) / values.std(axis=(0, 2))[:, None]
    windows = np.stack(np.split(expected, 4, axis=2), axis=1)  # (n, M, C, T)
    train = made.splits["train"]
    np.testing.assert_allclose(windows_of(train), windows, atol=1e-5)
    np.testing.assert_array_equal(train.foreground.numpy(), np.arange(4) == chosen[:, None] // 5)
    assert [len(data) for data in made.splits.values()] == [7, 7, 6] and train.mask is None
    assert made.class_names == ("0", "1") and made.title == "mine"


def test_padding_is_masked_and_neither_it_nor_test_series_count_in_the_standardisation(tmp_path: Path) -> None:
    arrays = series() | {"length": np.array([5, 9, 14, 23] * 5)}
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
    made = loaded(tmp_path, {"windows": windows, "label": np.array(["wake", "sleep"] * 5)})
    assert made.class_names == ("sleep", "wake") and [len(data) for data in made.splits.values()] == [6, 2, 2]
    for data in made.splits.values():
        assert (windows_of(data)[:, :, 1] == 0).all() and not data.foreground.any()
        assert set(data.label.tolist()) == {0, 1}
