"""The checkpoint: that it is what its record says, and how a broken file is told."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split
from labkit.training.gpt import GPT_FILE


@pytest.fixture(scope="module")
def about():
    with np.load(GPT_FILE) as file:
        return json.loads(str(file["about"]))


def test_the_checkpoint_is_the_one_its_file_describes(about):
    model = trained_gpt()
    assert about["vocabulary"] == characters(shakespeare()).symbols
    assert (len(about["vocabulary"]), about["context"], about["steps"]) == (68, 64, 5000)
    assert (model.token.num_embeddings, model.context) == (68, 64)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert all(p.requires_grad for p in model.parameters()), "labs train it on"
    bits = bits_per_character(model, shakespeare_split()[1])
    # Another order of float32 additions moves the mean of 37,120 losses by less than 1e-5.
    assert bits == pytest.approx(about["bits_per_character"], abs=1e-4)


def test_it_predicts_better_than_the_pairs_of_characters_it_has_read(about):
    """A bound from outside: the best guess from the character before alone."""
    train, test = (characters(shakespeare()).encode(part) for part in shakespeare_split())
    pairs = torch.ones(68, 68)  # Laplace: no pair is impossible
    pairs.index_put_((train[:-1], train[1:]), torch.tensor(1.0), accumulate=True)
    chances = (pairs / pairs.sum(dim=1, keepdim=True))[test[:-1], test[1:]]
    assert about["bits_per_character"] < -chances.log2().mean().item() - 1


def test_test_and_training_text_share_no_character():
    training, test = shakespeare_split()
    assert training + test == shakespeare()
    assert len(test) == pytest.approx(len(shakespeare()) / 10, abs=1)


class Uniform(nn.Module):
    """68 equal logits at every position; notes what it is shown."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.seen, self.dtype, self.inner = [], dtype, nn.Dropout()

    def forward(self, tokens):
        self.seen.append((tokens, self.training, self.inner.training, torch.is_grad_enabled()))
        return torch.zeros(*tokens.shape, 68, dtype=self.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_equal_logits_cost_log2_of_the_vocabulary(dtype):
    bits = bits_per_character(Uniform(dtype), shakespeare_split()[1][:1000])
    assert bits == pytest.approx(math.log2(68), rel=1e-6)


def test_pieces_do_not_overlap_and_modes_are_put_back():
    model, text = Uniform(), shakespeare()[: 64 * 300 + 7]
    model.inner.eval()
    bits_per_character(model, text)
    tokens = torch.cat([seen[0] for seen in model.seen])
    assert tokens.shape == (300, 64)
    assert characters(shakespeare()).decode(tokens) == text[: 64 * 300]
    assert not any(any(seen[1:]) for seen in model.seen), "eval mode, no graph"
    assert model.training and not model.inner.training


def test_a_function_will_do_and_targets_are_the_next_characters():
    def next_of(tokens):  # knows each next character inside a piece, and says a space at its end
        known = torch.cat([tokens[:, 1:], torch.full((len(tokens), 1), space)], dim=1)
        return 100.0 * nn.functional.one_hot(known, 68)

    space = characters(shakespeare()).symbols.index(" ")
    text = shakespeare()[: 64 * 50 + 1]
    wrong = sum(text[64 * i] != " " for i in range(1, 51))
    assert bits_per_character(next_of, text) == pytest.approx(
        wrong * 100 / math.log(2) / (64 * 50), rel=1e-5
    )


@pytest.mark.parametrize(
    ("text", "said"), [("x" * 64, "64 characters has no 64 and one"), ("é" * 100, "'é' is not in")]
)
def test_texts_that_cannot_be_measured(text, said):
    with pytest.raises(ValueError, match=said):
        bits_per_character(Uniform(), text)


def test_a_missing_file_says_how_to_get_it_back(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gpt\.npz is missing.*git checkout"):
        trained_gpt(tmp_path / "gpt.npz")


@pytest.mark.parametrize("where", [0.0, 0.01, 0.3, 0.6, 0.9, 0.999])
def test_a_damaged_file_says_so(tmp_path, where):
    content = bytearray(GPT_FILE.read_bytes())
    at = int(where * len(content))
    content[at : at + 16] = bytes(255 - byte for byte in content[at : at + 16])
    (tmp_path / "gpt.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"is damaged.*git checkout"):
        trained_gpt(tmp_path / "gpt.npz")


@pytest.mark.parametrize("size", [0, 100, 200_000])
def test_a_cut_off_file_says_so(tmp_path, size):
    (tmp_path / "gpt.npz").write_bytes(GPT_FILE.read_bytes()[:size])
    with pytest.raises(ValueError, match="is damaged"):
        trained_gpt(tmp_path / "gpt.npz")


def test_a_file_of_another_network_or_without_a_record_says_so(tmp_path):
    with np.load(GPT_FILE) as file:
        arrays = dict(file)
    np.savez(tmp_path / "other.npz", **arrays | {"token.weight": np.zeros((68, 32), np.float32)})
    with pytest.raises(ValueError, match=r"another network.*token\.weight"):
        trained_gpt(tmp_path / "other.npz")
    np.savez(tmp_path / "none.npz", **{n: arrays[n] for n in arrays if n != "about"})
    with pytest.raises(ValueError, match="damaged"):
        trained_gpt(tmp_path / "none.npz")
    np.savez(tmp_path / "less.npz", **arrays | {"about": '{"steps": 5000}'})
    with pytest.raises(ValueError, match="damaged"):
        trained_gpt(tmp_path / "less.npz")


def test_each_call_gives_a_model_of_its_own():
    first = trained_gpt()
    with torch.no_grad():
        first.head.weight.zero_()
    assert trained_gpt().head.weight.abs().max() > 0
