"""Data is what its README says, split by seed, and served in seeded batches again and again."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from labkit.base.home import DATA
from labkit.training import trained_gpt
from labkit.training.data import (
    Vocabulary,
    batches,
    character_batches,
    characters,
    digits,
    gpt_layers,
    shakespeare,
    shakespeare_split,
)

NUMBERED = torch.arange(10)


def epoch(loader):
    return [label for _, labels in loader for label in labels.tolist()]


def test_the_digits_are_split_and_none_is_lost():
    split = digits()
    assert split.train_images.shape == (1438, 1, 8, 8)
    assert split.test_images.shape == (359, 1, 8, 8)
    for images in (split.train_images, split.test_images):
        assert images.dtype == torch.float32
        assert (images.min(), images.max()) == (0, 1)
    assert {split.train_labels.dtype, split.test_labels.dtype} == {torch.int64}
    with np.load(DATA / "digits.npz") as arrays:
        stored = np.column_stack([arrays["images"].reshape(-1, 64), arrays["labels"]])
    rows = torch.cat(
        [
            torch.cat([16 * split.train_images.flatten(1), split.train_labels[:, None]], dim=1),
            torch.cat([16 * split.test_images.flatten(1), split.test_labels[:, None]], dim=1),
        ]
    )
    assert sorted(rows.int().tolist()) == sorted(stored.astype(int).tolist())


def test_a_fifth_of_each_digit_is_for_testing():
    split = digits(seed=3)
    train, test = split.train_labels.bincount(), split.test_labels.bincount()
    assert len(train) == len(test) == 10
    # Rounding to whole images leaves at most half of one.
    assert ((test - 0.2 * (train + test)).abs() <= 0.5).all()


def test_the_split_follows_from_the_seed():
    assert torch.equal(digits(1).test_images, digits(1).test_images)
    assert not torch.equal(digits(1).test_images, digits(2).test_images)


def test_the_recorded_gradient_and_activation_are_the_trained_gpts():
    model, recorded = trained_gpt(), gpt_layers()
    tokens = characters(shakespeare()).encode(shakespeare_split()[1][: 16 * 64 + 1])
    first, second = model.blocks
    # What is added behind a layer has the gradient of that layer's output.
    added = torch.zeros(16, 64, 64, requires_grad=True)
    middle = first(model.token(tokens[:-1].view(16, 64)) + model.position.weight) + added
    logits = model.head(model.norm(second(middle)))
    F.cross_entropy(logits.flatten(0, 1), tokens[1:]).backward()
    gradient = added.grad[0]
    # Sums in another order differ by some 2**-24 of the largest term.
    assert (recorded["gradient"] - gradient).abs().max() < 1e-4 * gradient.abs().max()

    linear = second.feed_forward[0]
    with torch.no_grad():
        attended = middle + second.attention(second.attention_norm(middle))
        entered = F.gelu(linear(second.feed_forward_norm(attended))).flatten()
    places = torch.linspace(0, entered.numel() - 1, 4093).long()
    assert (recorded["activation"] - entered[places]).abs().max() < 1e-4
    assert len(set((places % 256).tolist())) == 256  # of all channels


def test_data_draws_nothing_from_the_programs_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    digits()
    epoch(batches(NUMBERED, NUMBERED, 3))
    list(character_batches("to be or not to be", 4, 2, steps=3))
    assert torch.equal(torch.rand(1), expected)


def test_an_epoch_holds_everything_once_and_the_next_has_another_order():
    loader = batches(NUMBERED, NUMBERED, 3)
    first, second = epoch(loader), epoch(loader)
    assert sorted(first) == sorted(second) == NUMBERED.tolist()
    assert first != second != NUMBERED.tolist()
    assert [len(labels) for _, labels in loader] == [3, 3, 3, 1]
    assert len(loader) == 4


def test_orders_follow_from_the_seed():
    one, same, other = (batches(NUMBERED, NUMBERED, 3, seed=seed) for seed in (5, 5, 6))
    assert [epoch(one), epoch(one)] == [epoch(same), epoch(same)]
    assert epoch(batches(NUMBERED, NUMBERED, 3, seed=5)) != epoch(other)


def test_an_image_keeps_its_label():
    split = digits()
    stored = {
        tuple(image.flatten().tolist()): label
        for image, label in zip(split.train_images, split.train_labels.tolist(), strict=True)
    }
    for images, labels in batches(split.train_images, split.train_labels, 500):
        assert images.shape[1:] == (1, 8, 8) and labels.dtype == torch.int64
        assert [stored[tuple(image.flatten().tolist())] for image in images] == labels.tolist()


def test_drop_last_leaves_out_the_short_batch():
    loader = batches(NUMBERED, NUMBERED, 3, drop_last=True)
    assert [len(labels) for _, labels in loader] == [3, 3, 3] and len(loader) == 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: batches(NUMBERED, NUMBERED[:9], 3), "10 images but 9 labels"),
        (lambda: batches(NUMBERED, NUMBERED, 0), "10 images make no batch of 0"),
        (lambda: batches(NUMBERED[:0], NUMBERED[:0], 3), "0 images make no batch of 3"),
        (lambda: batches(NUMBERED, NUMBERED, 11, drop_last=True), "10 images make no batch of 11"),
        (lambda: character_batches("to be", 5, 2, steps=1), "a text of 5 characters has no 5 and"),
        (
            lambda: character_batches("to be", 0, 2, steps=1),
            "context=0, batch_size=2, steps=1: each must be at least 1",
        ),
        (lambda: character_batches("to be", 2, 2, steps=0), "steps=0: each"),
        (lambda: characters("to be").encode("toga"), "'ag' is not in this vocabulary of 5 symbols"),
        (lambda: characters("to be").decode(torch.tensor([0, 5])), "token 5 is not one of 0 to 4"),
        (lambda: characters("to be").decode(torch.tensor([-1])), "token -1 is not one of 0 to 4"),
    ],
)
def test_what_cannot_be_is_refused(call, said):
    with pytest.raises(ValueError) as caught:
        call()
    assert said in str(caught.value)


def test_the_text_is_shakespeares_alone():
    text = shakespeare()
    assert len(text) == 371_255 and text.isascii()
    for line in ("Et tu, Brute?", "To-morrow, and to-morrow, and to-morrow", "green-ey'd monster"):
        assert line in text
    for word in ("gutenberg", "copyright", "license", "etext", "http"):
        assert word not in text.lower()


def test_text_becomes_tokens_and_text_again():
    text = shakespeare()
    vocabulary = characters(text)
    tokens = vocabulary.encode(text)
    assert vocabulary.size == 68 == len(set(text))
    assert tokens.dtype == torch.int64
    assert (tokens.min(), tokens.max()) == (0, 67)
    assert vocabulary.decode(tokens) == text
    assert vocabulary.decode(tokens[:60].reshape(3, 20)) == text[:60]


def test_targets_are_the_inputs_one_character_later():
    text = "to be, or not to be"
    pieces = [text[start : start + 6] for start in range(len(text) - 5)]
    vocabulary = characters(text)
    loader = character_batches(text, 5, 4, steps=50)
    seen = set()
    for inputs, targets in loader:
        assert inputs.shape == targets.shape == (4, 5)
        for row, later in zip(inputs, targets, strict=True):
            assert torch.equal(row[1:], later[:-1])
            seen.add(vocabulary.decode(torch.cat([row, later[-1:]])))
    assert len(loader) == 50
    assert seen == set(pieces), "200 draws from 14 places miss one of them in 1 of 200,000 seeds"


def test_pieces_follow_from_the_seed_and_differ_between_epochs():
    def firsts(loader):
        return [inputs.tolist() for inputs, _ in loader]

    text = shakespeare()[:2000]
    one, same = (character_batches(text, 8, 4, steps=3, seed=1) for _ in range(2))
    first = firsts(one)
    assert first == firsts(same)
    assert first != firsts(one) == firsts(same)


def test_a_part_of_a_text_can_keep_the_vocabulary_of_the_whole():
    whole = characters("abcdef")
    inputs, _ = next(iter(character_batches("fefefe", 2, 1, steps=1, vocabulary=whole)))
    assert set(inputs.flatten().tolist()) <= {4, 5}
    assert Vocabulary("ef").encode("fe").tolist() == [1, 0]
