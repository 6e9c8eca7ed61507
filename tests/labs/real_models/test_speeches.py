"""S33: a classifier with tokenizer and masks, offline; padding changes no answer."""

import math

import pytest
import torch
import torch.nn.functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.real_models.text import (
    LONGEST,
    PAD,
    START,
    UNKNOWN,
    TextClassifier,
    WordTokenizer,
    collate,
    eager_attention,
    fused_attention,
    speech_batches,
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
    split = speeches()
    assert (len(split.train_texts), len(split.test_texts)) == (1968, 491)
    every = split.train_texts + split.test_texts
    assert all(3 <= len(text.split()) <= LONGEST for text in every)
    counts = torch.cat([split.train_labels, split.test_labels]).bincount()
    assert counts.tolist() == [743, 612, 1104]
    other = speeches(1)
    assert sorted(other.train_texts + other.test_texts) == sorted(every)
    assert other.test_texts != split.test_texts
    assert speeches().test_texts == split.test_texts


def test_a_speech_bears_its_own_play_s_label_and_no_speaker():
    split = speeches()
    labels = torch.cat([split.train_labels, split.test_labels]).tolist()
    label = dict(zip(split.train_texts + split.test_texts, labels, strict=True))
    (flavius,) = (text for text in label if text.startswith("hence home you idle creatures"))
    (witch,) = (text for text in label if text.startswith("when shall we three meet again"))
    (iago,) = (text for text in label if text.startswith("'sblood but you will not hear me"))
    assert (label[flavius], label[witch], label[iago]) == (0, 1, 2)
    assert len(flavius.split()) == LONGEST


def test_unknown_words_empty_texts_and_long_ones_are_handled():
    tokenizer = WordTokenizer.of(["the noble brutus", "the noble", "the"], words=2)
    assert tokenizer.words == ("the", "noble") and tokenizer.size == 5
    assert tokenizer.encode("The noble CAESAR!") == [START, 3, 4, UNKNOWN]
    assert tokenizer.encode("") == tokenizer.encode("?!") == [START]
    batch = collate(["the", "", "noble the " * 3], torch.tensor([0, 1, 2]), tokenizer, context=5)
    assert batch.tokens.tolist() == [[2, 3, 0, 0, 0], [2, 0, 0, 0, 0], [2, 4, 3, 4, 3]]
    assert torch.equal(batch.mask, batch.tokens != PAD) and batch.cut == 2


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0]])
def test_a_label_out_of_range_is_named(labels):
    wrong = max(labels, key=lambda label: not 0 <= label < 3)
    with pytest.raises(ValueError, match=f"label {wrong} is not one of 0 to 2"):
        collate(["a", "b"], torch.tensor(labels), WordTokenizer(()))


def test_texts_without_their_labels_are_refused():
    for texts, labels in (([], []), (["a"], [0, 1])):
        with pytest.raises(ValueError, match="one label a text"):
            collate(texts, torch.tensor(labels), WordTokenizer(()))


def test_each_text_comes_once_an_epoch_and_in_another_order():
    texts = [chr(97 + i) for i in range(7)]
    loader = speech_batches(texts, torch.arange(7) % 3, WordTokenizer(tuple(texts)), 3, seed=1)
    epochs = [[row for batch in loader for row in batch["tokens"][:, 1].tolist()] for _ in (0, 1)]
    assert len(loader) == 3
    assert [sorted(epoch) for epoch in epochs] == [list(range(3, 10))] * 2
    assert epochs[0] != epochs[1]
    for batch in loader:
        assert torch.equal(batch["labels"], (batch["tokens"][:, 1] - 3) % 3)


# Masks


def qkv(dtype, n=3, t=6, scale=1.0):
    g = torch.Generator().manual_seed(0)
    return [(scale * torch.randn(n, 2, t, 8, generator=g)).to(dtype) for _ in range(3)]


def mask_of(*lengths, t=6):
    return torch.arange(t) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("attend", [eager_attention, fused_attention])
def test_masked_attention_is_attention_among_the_real_tokens(attend):
    q, k, v = qkv(torch.float64)
    found = attend(q, k, v, mask_of(6, 4, 1))
    for row, length in enumerate((6, 4, 1)):
        want = F.scaled_dot_product_attention(q[row], k[row, :, :length], v[row, :, :length])
        assert torch.allclose(found[row], want, atol=1e-6)


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("attend", [eager_attention, fused_attention])
def test_large_scores_and_a_row_of_padding_alone_are_finite(attend, dtype):
    q, k, v = qkv(dtype, scale=100.0)
    largest = (q.float() @ k.float().mT).abs().max()
    assert 65504 < largest < 65504 * math.sqrt(8)  # FP16 holds a score, and not q @ k.mT
    with emulate_gpu(), torch.autocast("cpu", dtype=dtype):
        found = attend(q, k, v, mask_of(6, 3, 0))
    assert found.dtype is dtype and found.isfinite().all()


def test_the_mask_s_number_is_the_least_of_the_scores_dtype(monkeypatch):
    seen = []
    whole = torch.Tensor.masked_fill

    def watched(tensor, mask, value):
        seen.append((tensor.dtype, value))
        return whole(tensor, mask, value)

    monkeypatch.setattr(torch.Tensor, "masked_fill", watched)
    with torch.autocast("cpu", dtype=torch.float16):
        eager_attention(*qkv(torch.float32), mask_of(6, 3, 0))
    assert seen == [(torch.float32, torch.finfo(torch.float32).min)]


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_layer_norm_and_softmax_compute_in_float32_under_autocast(trained, monkeypatch, dtype):
    seen, softmaxes = {}, []
    whole = torch.Tensor.softmax

    def watched(scores, dim):
        softmaxes.append((scores.dtype, whole(scores, dim).dtype))
        return whole(scores, dim)

    monkeypatch.setattr(torch.Tensor, "softmax", watched)
    model = TextClassifier(trained.tokenizer.size, attend=eager_attention)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.LayerNorm | torch.nn.Linear):
            module.register_forward_hook(lambda _, x, y, name=name: seen.update({name: y.dtype}))
    with emulate_gpu(), torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        model(trained.test.tokens[:4])
    norms = {name for name in seen if name.endswith("norm")}
    assert len(norms) == 5 and {seen[name] for name in norms} == {torch.float32}
    assert {seen[name] for name in seen.keys() - norms} == {dtype}
    assert softmaxes == [(torch.float32, torch.float32)] * 2


@pytest.mark.parametrize("attend", [eager_attention, fused_attention])
def test_padding_changes_no_answer_and_a_batch_of_padding_has_one(trained, attend):
    model = TextClassifier(trained.tokenizer.size, attend=attend)
    model.load_state_dict(trained.model.state_dict())
    tokens = trained.test.tokens[trained.test.tokens[:, 12] == PAD][:50]
    with torch.no_grad():
        whole, cut = model(tokens), model(tokens[:, :12])
        assert torch.allclose(whole, cut, atol=1e-5)
        assert torch.allclose(whole, trained.model(tokens), atol=1e-5)
        # The control: without the mask padding changes answers.
        open_ = model(tokens, torch.ones_like(tokens, dtype=torch.bool))
        assert (open_.argmax(dim=1) != whole.argmax(dim=1)).any()
        assert model(torch.zeros(2, 5, dtype=torch.int64)).isfinite().all()


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_a_row_of_padding_alone_is_finite_in_16_bits_and_backwards(dtype):
    for attend in (eager_attention, fused_attention):
        torch.manual_seed(0)
        model = TextClassifier(50, attend=attend)
        tokens = torch.tensor([[START, 7, 9, PAD], [PAD] * 4])
        with emulate_gpu():
            with torch.autocast("cpu", dtype=dtype):
                logits = model(tokens)
                loss = F.cross_entropy(logits, torch.tensor([0, 1]))
            loss.backward()
        assert logits.isfinite().all()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_what_a_model_cannot_take_is_refused():
    model = TextClassifier(50, context=8)
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    with pytest.raises(ValueError, match="up to 8, got 2 x 9"):
        model(torch.zeros(2, 9, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"torch\.bool"):
        model(tokens, torch.ones(2, 8))
    with pytest.raises(ValueError, match=r"shape \(2, 8\)"):
        model(tokens, torch.ones(2, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match="3 heads"):
        TextClassifier(50, heads=3)


# Training


def test_the_pooling_may_be_another(trained):
    def everything(hidden, mask):
        assert hidden.shape[:2] == mask.shape and mask.dtype is torch.bool
        return hidden.float().sum(dim=1)

    model = TextClassifier(50, pool=everything)
    tokens = torch.tensor([[START, 7, 9, PAD]])
    assert torch.equal(model(tokens), model.head(model.hidden(tokens).sum(dim=1)))


def test_it_learns_and_its_accuracy_is_that_of_the_test_texts(trained):
    majority = trained.test.labels.bincount().max().item() / len(trained.test.labels)
    assert trained.accuracy > majority + 0.1
    assert len(trained.losses) == 124 and sum(trained.losses[-10:]) / 10 < 0.75
    with torch.no_grad():
        right = trained.model(trained.test.tokens).argmax(dim=1) == trained.test.labels
    assert right.float().mean().item() == pytest.approx(trained.accuracy, abs=1e-6)
    assert evaluate(trained.model, trained.test.tokens, trained.test.labels) == trained.accuracy


def test_it_learns_in_16_bits():
    assert trained_classifier(precision="fp16").accuracy > 0.6
