"""Words of captions and their numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcamlib.data.vocabulary import SPECIAL, build_vocabulary, decode, encode, words_of


@pytest.mark.parametrize(
    "caption, words",
    [
        ("A man's T-shirt, and 2 dogs.", "a man 's t-shirt and 2 dogs"),
        ("Don't  stop\nat 3 o'clock!", "don't stop at 3 o'clock"),
        ("The girls' (red) hats; it\u2019s late", "the girls red hats it 's late"),
        ('A "black-and-white" caf\u00c9 - open', "a black-and-white caf\u00e9 open"),
        ("one_two 'three' --four-- s's", "one two three four s 's"),
        (" .,;!? -' ", ""),
    ],
)
def test_captions_are_cut_by_the_stated_rule(caption: str, words: str) -> None:
    assert words_of(caption) == tuple(words.split())


@settings(max_examples=40)
@given(st.text(max_size=60))
def test_no_word_is_a_special_one_and_cutting_again_changes_nothing(caption: str) -> None:
    words = words_of(caption)
    assert not set(words) & set(SPECIAL)
    assert words_of(" ".join(word for word in words if word != "'s")) == tuple(word for word in words if word != "'s")


def test_words_go_by_frequency_then_spelling_and_rare_ones_are_left_out() -> None:
    captions = [("b", "a", "c", "c"), ("c", "b", "a", "d"), ("d", "\u00e9", "b")]
    assert build_vocabulary(captions, 1) == (*SPECIAL, "b", "c", "a", "d", "\u00e9")
    assert build_vocabulary(captions, 3) == (*SPECIAL, "b", "c")


def test_numbers_and_back() -> None:
    vocabulary = build_vocabulary([("a", "dog", "a"), ("a", "cat")])
    numbers = {word: number for number, word in enumerate(vocabulary)}
    assert vocabulary == ("<pad>", "<start>", "<end>", "<unk>", "a", "cat", "dog")
    assert encode(("a", "dog", "ran"), numbers) == [1, 4, 6, 3, 2]
    assert decode([1, 4, 6, 3, 2, 5, 0], vocabulary) == ("a", "dog", "<unk>")
    assert decode([4, 0, 5], vocabulary) == ("a", "cat") and decode([], vocabulary) == ()
