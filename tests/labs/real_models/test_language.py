"""S30: a GPT is trained with accumulation, clipping, a schedule and activation checkpointing."""

import contextlib

import pytest
import torch

from labkit.emulation import emulate_gpu
from labkit.labs.real_models.language import (
    checkpointed,
    training_bytes,
    unigram_entropy,
    zero_table,
)
from labkit.measuring import work_and_memory
from labkit.training import cross_entropy, train
from labkit.training.data import character_batches, shakespeare
from labkit.training.models import SmallGPT

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def made():
    torch.manual_seed(0)
    return SmallGPT(68, 32)


def text(steps, batch_size=16, seed=0):
    return list(character_batches(shakespeare(), 32, batch_size, steps=steps, seed=seed))


def adamw(model, lr=3e-3):
    return torch.optim.AdamW(model.parameters(), lr=lr)


def losses(model, batches, *, precision="bf16", checkpoint=False, **settings):
    with checkpointed(model.blocks) if checkpoint else contextlib.nullcontext():
        run = train(
            model, batches, optimizer=adamw(model), precision=precision, progress=False, **settings
        )
    return [record.loss for record in run]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_loss_falls_below_the_entropy_of_single_characters(precision):
    found = losses(made(), text(60), precision=precision)
    assert found[0] > 4
    assert sum(found[-10:]) / 10 < unigram_entropy(shakespeare()) - 0.1


def test_the_entropy_is_that_of_the_frequencies():
    assert unigram_entropy("aabb") == pytest.approx(torch.tensor(2.0).log().item())
    assert unigram_entropy("aaaa") == 0
    assert unigram_entropy(shakespeare()) == pytest.approx(3.350, abs=5e-4)


@pytest.mark.parametrize("precision", AUTOCAST)
def test_checkpointing_gives_the_same_gradients_bit_for_bit(precision):
    dtype, ((tokens, next_tokens),) = AUTOCAST[precision], text(1)

    def gradients(block):
        model = made()
        with emulate_gpu(), block(model):
            enabled = dtype is not None
            with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=enabled):
                loss = cross_entropy(model(tokens), next_tokens)
            (1024 * loss).backward()
        return [parameter.grad for parameter in model.parameters()]

    plain = gradients(lambda model: contextlib.nullcontext())
    again = gradients(lambda model: checkpointed(model.blocks))
    assert all(map(torch.equal, plain, again))
    assert any((gradient != 0).any() for gradient in plain)


@pytest.mark.parametrize("precision", AUTOCAST)
def test_checkpointing_gives_the_same_curve(precision):
    batches = text(5)
    settings = {"precision": precision, "max_grad_norm": 0.5}
    plain = losses(made(), batches, **settings)
    assert losses(made(), batches, checkpoint=True, **settings) == plain


def test_checkpointing_ends_with_its_block_and_runs_each_block_twice():
    model, calls = made(), []
    for block in model.blocks:
        block.attention_norm.register_forward_hook(lambda *_: calls.append(1))
    with checkpointed(model.blocks):
        loss = cross_entropy(model(text(1)[0][0]), text(1)[0][1])
        assert len(calls) == 2
        loss.backward()
    assert len(calls) == 4
    cross_entropy(model(text(1)[0][0]), text(1)[0][1]).backward()
    assert len(calls) == 6
    assert all("forward" not in vars(block) for block in model.blocks)


def test_accumulated_batches_make_the_step_of_one_batch_of_all_their_rows():
    batches = text(8, batch_size=8)
    for i, (_, targets) in enumerate(batches):
        targets[: i % 3, 5:] = -100  # so that a mean of means would be another number
        batches[i] = (batches[i][0], targets)
    pairs = zip(batches[::2], batches[1::2], strict=True)
    joined = [tuple(map(torch.cat, zip(*pair, strict=True))) for pair in pairs]
    plain = losses(made(), joined, precision="fp32")
    found = losses(made(), batches, precision="fp32", accumulate=2)
    assert found == pytest.approx(plain, rel=1e-5)
    assert len(found) == 4


def test_accumulation_clipping_a_schedule_and_checkpointing_give_one_curve():
    def run(block):
        model = made()
        optimizer = adamw(model)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
        settings = {"optimizer": optimizer, "schedule": schedule, "precision": "fp16"}
        settings |= {"max_grad_norm": 0.3, "accumulate": 2}
        with block(model.blocks):
            records = train(model, text(8), progress=False, **settings)
        return list(records), optimizer.param_groups[0]["lr"]

    plain, lr = run(contextlib.nullcontext)
    found, same_lr = run(checkpointed)
    assert found == plain and same_lr == lr == pytest.approx(3e-3)
    assert any(record.grad_norm > 0.3 for record in plain)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="3 heads cannot share a width of 64"):
        SmallGPT(68, 32, heads=3)


# Memory


def test_a_parameter_takes_16_bytes_and_checkpointing_leaves_fewer_activations():
    model, batch = made(), text(1)[0]
    parameters = sum(p.numel() for p in model.parameters())
    held = training_bytes(model, batch)
    assert sum(held.values()) - held["activations"] == 16 * parameters
    kept = training_bytes(model, batch, checkpoint=True)
    assert kept["activations"] < 0.7 * held["activations"]
    assert {**held, "activations": 0} == {**kept, "activations": 0}
    # The last block's input and all that stands behind it is still there.
    assert kept["activations"] > 4 * batch[0].numel() * 64 * len(model.blocks)


def test_checkpointing_runs_about_a_quarter_of_the_work_again():
    model, batch = made(), text(1)[0]
    work, kept = work_and_memory(model, batch)
    with checkpointed(model.blocks):
        more_work, less_kept = work_and_memory(model, batch)
    assert 1.15 < more_work / work < 1.34 and less_kept < 0.4 * kept  # at most one forward in three


def test_zero_divides_the_moments_then_the_gradients_then_the_weights():
    held = {"weights": 400, "gradients": 400, "moments": 800, "activations": 30}
    table = zero_table(held, 4)
    assert table["total"].tolist() == [1630, 1030, 730, 430]
    assert table.loc[3].tolist() == [100, 100, 200, 30, 430]
    assert zero_table(held, 1)["total"].tolist() == [1630] * 4
    with pytest.raises(ValueError, match="0 devices"):
        zero_table(held, 0)
