"""S33: a classifier with tokenizer and masks, offline; padding changes no answer."""

import pytest
import torch

from labkit.emulation import emulate_gpu
from labkit.labs.real_models.text import (
    LONGEST,
    PAD,
    START,
    UNKNOWN,
    EncoderBlock,
    TextClassifier,
    WordTokenizer,
    collate,
    speeches,
    trained_classifier,
)
from labkit.training import evaluate

SIXTEEN = [torch.float16, torch.bfloat16]


@pytest.fixture(scope="module")
def trained():
    return trained_classifier()


# Data and tokenizer


def test_the_speeches_are_split_by_seed_and_come_from_three_plays():
    training, test = speeches()
    assert (len(training), len(test)) == (1968, 491)
    assert all(3 <= len(text.split()) <= LONGEST for text, _ in training + test)
    counts = torch.tensor([label for _, label in training + test]).bincount()
    assert counts.tolist() == [743, 612, 1104]
    other = speeches(1)
    assert sorted(other[0] + other[1]) == sorted(training + test)
    assert other[1] != test == speeches()[1]


def test_a_speech_bears_its_own_play_s_label_and_no_speaker():
    training, test = speeches()
    label = dict(training + test)
    (flavius,) = (text for text in label if text.startswith("hence home you idle creatures"))
    (witch,) = (text for text in label if text.startswith("when shall we three meet again"))
    (iago,) = (text for text in label if text.startswith("'sblood but you will not hear me"))
    assert (label[flavius], label[witch], label[iago]) == (0, 1, 2)
    assert len(flavius.split()) == LONGEST


def test_unknown_words_empty_texts_and_long_ones_are_handled():
    tokenizer = WordTokenizer.of([("the noble brutus", 0), ("the noble", 0), ("the", 1)], words=2)
    assert tokenizer.words == ("the", "noble") and tokenizer.size == 5
    assert tokenizer.encode("The noble CAESAR!") == [START, 3, 4, UNKNOWN]
    assert tokenizer.encode("") == tokenizer.encode("?!") == [START]
    batch = collate([("the", 0), ("", 1), ("noble the " * 3, 2)], tokenizer, context=5)
    assert batch["tokens"].tolist() == [[2, 3, 0, 0, 0], [2, 0, 0, 0, 0], [2, 4, 3, 4, 3]]
    assert torch.equal(batch["mask"], batch["tokens"] != PAD)
    assert batch["labels"].tolist() == [0, 1, 2]


# Masks


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_layer_norm_and_softmax_compute_in_float32_under_autocast(trained, dtype):
    """Attention's weights are float32's, rounded once: those of scores rounded first are not."""
    seen, attended = {}, []
    model = trained.model

    def keep(name):
        return lambda _, x, y: seen.update({name: y.dtype})

    handles = [
        module.register_forward_hook(keep(name))
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.LayerNorm | torch.nn.Linear)
    ]
    block = model.blocks[0]
    handles.append(block.qkv.register_forward_hook(lambda _, x, y: attended.append(y)))
    handles.append(
        block.attention_out.register_forward_pre_hook(lambda _, x: attended.append(x[0]))
    )
    tokens = trained.test["tokens"][:4]
    with emulate_gpu(), torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        model(tokens)
    for handle in handles:
        handle.remove()
    norms = {name for name in seen if name.endswith("norm")}
    assert len(norms) == 5 and {seen[name] for name in norms} == {torch.float32}
    assert {seen[name] for name in seen.keys() - norms} == {dtype}
    q, k, v = attended[0].double().unflatten(-1, (3, block.heads, -1)).permute(2, 0, 3, 1, 4)
    least = torch.finfo(torch.float64).min
    scores = (q @ k.mT / 4).masked_fill(tokens[:, None, None, :] == PAD, least)
    exact = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    # Rounded once in the weights and once in the output; rounded scores would add to both.
    bound = 2 * torch.finfo(dtype).eps * v.abs().max()
    assert ((attended[1].double() - exact).abs() <= bound).all()


def test_padding_changes_no_answer_and_a_batch_of_padding_has_one(trained):
    model = trained.model
    tokens = trained.test["tokens"][trained.test["tokens"][:, 12] == PAD][:50]
    with torch.no_grad():
        whole, cut = model(tokens), model(tokens[:, :12])
        assert torch.allclose(whole, cut, atol=1e-5)
        # The control: without the mask padding changes answers.
        open_ = model(tokens, torch.ones_like(tokens, dtype=torch.bool))
        assert (open_.argmax(dim=1) != whole.argmax(dim=1)).any()
        assert model(torch.zeros(2, 5, dtype=torch.int64)).isfinite().all()


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_large_scores_and_a_row_of_padding_alone_are_finite_and_backwards(dtype):
    torch.manual_seed(0)
    block, x = EncoderBlock(64, 4), torch.randn(2, 6, 64)
    with torch.no_grad():
        block.qkv.weight[:128] *= 200  # queries and keys
    with emulate_gpu():
        with torch.autocast("cpu", dtype=dtype):
            qkv = block.qkv(block.attention_norm(x)).double().unflatten(-1, (3, 4, 16))
            q, k, _ = qkv.permute(2, 0, 3, 1, 4)
            assert (q @ k.mT).abs().max() > 65504
            found = block(x, torch.tensor([[True] * 4 + [False] * 2, [False] * 6]))
        found.float().square().mean().backward()
    assert found.isfinite().all()
    assert all(p.grad.isfinite().all() for p in block.parameters())


def test_what_a_model_cannot_take_is_refused():
    model = TextClassifier(50, context=8)
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    with pytest.raises(ValueError, match="up to 8, got 2 x 9"):
        model(torch.zeros(2, 9, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"torch\.bool"):
        model(tokens, torch.ones(2, 8))
    with pytest.raises(ValueError, match=r"shape \(2, 8\)"):
        model(tokens, torch.ones(2, 7, dtype=torch.bool))


# Training


def test_the_pooling_may_be_another(trained):
    def everything(hidden, mask):
        assert hidden.shape[:2] == mask.shape and mask.dtype is torch.bool
        return hidden.float().sum(dim=1)

    model = TextClassifier(50, pool=everything)
    tokens = torch.tensor([[START, 7, 9, PAD]])
    assert torch.equal(model(tokens), model.head(model.hidden(tokens, tokens != PAD).sum(dim=1)))


def test_it_learns_and_its_accuracy_is_that_of_the_test_texts(trained):
    tokens, _, labels = trained.test.values()
    majority = labels.bincount().max().item() / len(labels)
    assert trained.accuracy > majority + 0.1
    assert len(trained.losses) == 124 and sum(trained.losses[-10:]) / 10 < 0.75
    assert evaluate(trained.model, tokens, labels) == trained.accuracy


def test_it_learns_in_16_bits():
    assert trained_classifier(precision="fp16").accuracy > 0.6
