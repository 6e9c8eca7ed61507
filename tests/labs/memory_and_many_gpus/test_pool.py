"""S16: a pool under a limit of bytes, whose least recently used tensor goes."""

import random
import weakref

import pytest
import torch

from labkit.labs.memory_and_many_gpus.pool import Evicted, Pool


def put(pool, key, values, dtype=torch.float32):
    return pool.put(key, (values,), dtype)


def test_bytes_count_and_not_elements():
    pool = Pool(100)
    put(pool, "doubles", 5, torch.float64)
    put(pool, "halves", 5, torch.float16)
    put(pool, "codes", 50, torch.uint8)
    assert pool.used == 40 + 10 + 50 and all(key in pool for key in ("doubles", "halves", "codes"))


def test_the_least_recently_used_goes_and_get_is_a_use():
    pool = Pool(48)
    for key in "abc":
        put(pool, key, 4)
    assert pool.get("a").tensor.shape == (4,)
    put(pool, "d", 4)
    assert [key in pool for key in "abcd"] == [True, False, True, True]
    put(pool, "e", 8)  # two go, the oldest first
    assert [key in pool for key in "acde"] == [False, False, True, True]


def test_a_handle_whose_tensor_went_raises():
    pool = Pool(16)
    first = put(pool, "first", 4)
    values = first.tensor
    assert values is first.tensor and values.sum() == 0
    put(pool, "second", 1)
    with pytest.raises(Evicted, match="'first' is no longer in the pool"):
        first.tensor  # noqa: B018
    assert values.untyped_storage().nbytes() == 0
    with pytest.raises(KeyError):
        pool.get("first")
    again = put(pool, "first", 4)
    assert again.tensor.sum() == 0 and "second" not in pool and pool.used == 16


def test_what_never_fits_is_refused_with_numbers_and_nothing_goes():
    pool = Pool(100)
    kept = put(pool, "kept", 10)
    with pytest.raises(MemoryError, match="asked 4,000 B, limit 100 B"):
        put(pool, "large", 1000)
    assert kept.tensor.numel() == 10 and pool.used == 40


def test_a_key_stands_once():
    pool = Pool(100)
    put(pool, "key", 1)
    with pytest.raises(ValueError, match="'key' is in the pool"):
        put(pool, "key", 2)


@pytest.mark.seeds(range(3))
def test_bytes_alive_never_exceed_the_limit(seed):
    """By weak references to every storage, while a user keeps tensors and views."""
    rng, pool, kept = random.Random(seed), Pool(4096), []
    storages: list[weakref.ref] = []

    def alive():
        return sum(found.nbytes() for ref in storages if (found := ref()) is not None)

    for number in range(300):
        what = rng.random()
        held = [key for key in range(number) if key in pool]
        if what < 0.6 or not held:
            dtype = rng.choice([torch.float64, torch.float32, torch.bfloat16, torch.int8])
            handle = put(pool, number, rng.randint(1, 300), dtype)
            storages.append(weakref.ref(handle.tensor.untyped_storage()))
            if rng.random() < 0.3:
                kept.append(handle.tensor[: handle.nbytes // 16])
        else:
            pool.get(rng.choice(held))
        assert alive() == pool.used <= pool.limit
    assert len(storages) > 100 and kept


def test_it_holds_half_of_24_layers_for_zero_3():
    """A step gathers each layer forward and backward; the last 12 of forward are still there."""

    def gathered(order, room):
        pool, count = Pool(4 * room), 0
        for layer in order:
            if layer in pool:
                pool.get(layer)
            else:
                put(pool, layer, 1)
                count += 1
        return count

    layers = list(range(24))
    step = layers + layers[::-1]
    # From the second step on its first 12 layers are there from the step before.
    assert gathered(step * 3, room=12) - gathered(step * 2, room=12) == 24
    assert gathered(step * 3, room=1) - gathered(step * 2, room=1) == 46
    # In a cycle the layer that went is always the next one.
    assert gathered(layers * 3, room=23) == 72
