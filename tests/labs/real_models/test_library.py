"""transformers trains what it loads, and it loads a BF16 checkpoint as BF16."""

import sys

import pytest
import torch

from labkit.base.home import import_optional
from labkit.labs.real_models.library import loaded_run


def test_a_checkpoint_in_bf16_is_loaded_as_bf16_and_most_weights_stay():
    plain, wide = loaded_run(), loaded_run(torch.float32)
    assert (plain.parameters, plain.moments, plain.matmul) == ("bfloat16",) * 3
    assert (wide.parameters, wide.moments, wide.matmul) == ("float32", "float32", "bfloat16")
    assert 0.05 < plain.moved < 0.5 and wide.moved > 0.99


def test_nothing_of_bert_is_nan_in_a_row_of_padding():
    """The library's own masks are safe: what breaks is the pooling that people write."""
    modeling = import_optional("transformers.models.bert.modeling_bert")
    config = modeling.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, num_labels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = modeling.BertForSequenceClassification(config).eval()
    tokens = torch.randint(5, 50, (3, 8))
    mask = torch.tensor([[1] * 8, [1] * 4 + [0] * 4, [0] * 8])
    with torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=mask).logits
        padded = torch.cat([tokens, torch.full((3, 6), 7)], dim=1)
        longer = torch.cat([mask, torch.zeros(3, 6, dtype=torch.int64)], dim=1)
        again = model(input_ids=padded, attention_mask=longer).logits
    assert logits.isfinite().all()
    assert torch.allclose(logits[:2], again[:2], atol=1e-5)


def test_without_transformers_one_hears_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="pip install transformers"):
        loaded_run()
