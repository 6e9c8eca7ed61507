# Answers to lab 10 that the author of its checks had not foreseen: see tests/corpus.py.

import numpy as np
import torch.nn.functional as F
from torch.nn.utils import prune


# %% right hold-masks: one threshold a tie at a time, masks in a dict
def hold_masks(model, optimizer, share):
    weights = {name: m.weight for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    ranked = sorted(
        (abs(v), name, i)
        for name, w in weights.items()
        for i, v in enumerate(w.detach().flatten().tolist())
    )
    keep = {name: torch.ones_like(w) for name, w in weights.items()}
    for _, name, i in ranked[: round(share * len(ranked))]:
        keep[name].view(-1)[i] = 0

    def hook(optimizer, args, kwargs):
        with torch.no_grad():
            for name, w in weights.items():
                w.mul_(keep[name])

    hook(optimizer, (), {})
    return optimizer.register_step_post_hook(hook)


# %% right hold-masks: argsort, and where on .data
def hold_masks(model, optimizer, share):
    layers = linears(model)
    flat = torch.cat([layer.weight.data.reshape(-1) for layer in layers])
    order = flat.abs().argsort()
    alive = torch.ones(flat.numel(), dtype=torch.bool)
    alive[order[: int(round(share * flat.numel()))]] = False

    def apply(*args):
        start = 0
        for layer in layers:
            w = layer.weight
            mask = alive[start : start + w.numel()].reshape(w.shape)
            w.data = torch.where(mask, w.data, torch.zeros_like(w.data))
            start += w.numel()

    apply()
    return optimizer.register_step_post_hook(apply)


# %% right hold-masks: torch's own pruning chooses, and its masks are taken over
def hold_masks(model, optimizer, share):
    layers = linears(model)
    prune.global_unstructured(
        [(layer, "weight") for layer in layers],
        pruning_method=prune.L1Unstructured,
        amount=round(share * sum(layer.weight.numel() for layer in layers)),
    )
    masks = [layer.weight_mask.clone() for layer in layers]
    for layer in layers:
        prune.remove(layer, "weight")

    @torch.no_grad()
    def again(*_):
        for layer, mask in zip(layers, masks, strict=True):
            layer.weight.mul_(mask)

    return optimizer.register_step_post_hook(again)


# %% right hold-masks: numpy sorts, the hook writes indices
def hold_masks(model, optimizer, share):
    weights = [m.weight for m in model.modules() if type(m) is nn.Linear]
    sizes = np.abs(np.concatenate([w.detach().numpy().ravel() for w in weights]))
    count = int(np.rint(share * sizes.size))
    gone = np.argsort(sizes, kind="stable")[:count]
    ends = np.cumsum([w.numel() for w in weights])
    places = [
        torch.from_numpy(gone[(gone >= end - w.numel()) & (gone < end)] - (end - w.numel()))
        for w, end in zip(weights, ends)
    ]

    def zero(optimizer, *_):
        for w, at in zip(weights, places):
            w.data.view(-1)[at] = 0.0

    zero(optimizer)
    return optimizer.register_step_post_hook(zero)


# %% right hold-masks: gradients and moments are cleared as well
def hold_masks(model, optimizer, share):
    weights = [layer.weight for layer in linears(model)]
    sizes = torch.cat([w.detach().abs().flatten() for w in weights])
    mask = torch.zeros(len(sizes), dtype=torch.bool)
    mask[sizes.topk(round(share * len(sizes)), largest=False)[1]] = True
    pairs = [(w, m.view_as(w)) for w, m in zip(weights, mask.split([w.numel() for w in weights]))]

    @torch.no_grad()
    def clear(opt, args, kwargs):
        for w, m in pairs:
            w[m] = 0
            if w.grad is not None:
                w.grad[m] = 0
            for value in opt.state[w].values():
                if isinstance(value, torch.Tensor) and value.shape == w.shape:
                    value[m] = 0

    clear(optimizer, (), {})
    return optimizer.register_step_post_hook(clear)


# %% right hold-masks: an object with remove of its own
class Held:
    def __init__(self, model, optimizer, share):
        self.weights = [layer.weight for layer in linears(model)]
        sizes = torch.cat([w.detach().abs().flatten() for w in self.weights])
        order = sizes.sort(stable=True).indices[: round(len(sizes) * share)]
        flags = torch.zeros(len(sizes)).index_fill(0, order, 1.0).bool()
        self.flags = flags.split([w.numel() for w in self.weights])
        self.handles = [
            optimizer.register_step_pre_hook(self),
            optimizer.register_step_post_hook(self),
        ]
        self()

    def __call__(self, *_):
        with torch.no_grad():
            for w, flag in zip(self.weights, self.flags):
                w.masked_fill_(flag.view(w.shape), 0)

    def remove(self):
        for handle in self.handles:
            handle.remove()


hold_masks = Held


# %% right hold-masks: kthvalue, with ties counted off
def hold_masks(model, optimizer, share):
    weights = [layer.weight for layer in linears(model)]
    sizes = torch.cat([w.detach().abs().flatten() for w in weights])
    count = round(share * len(sizes))
    if count:
        limit = sizes.kthvalue(count).values
        gone = sizes < limit
        ties = (sizes == limit).nonzero().flatten()
        gone[ties[: count - int(gone.sum())]] = True
    else:
        gone = torch.zeros_like(sizes, dtype=torch.bool)
    masks = [g.view_as(w) for g, w in zip(gone.split([w.numel() for w in weights]), weights)]

    def hook(*_):
        with torch.no_grad():
            for w, mask in zip(weights, masks):
                w[mask] = 0.0

    hook()
    return optimizer.register_step_post_hook(hook)


# %% wrong hold-masks: torch's prune and nothing else
#    says: prune keeps the old weight and a mask beside it
def hold_masks(model, optimizer, share):
    prune.global_unstructured(
        [(layer, "weight") for layer in linears(model)],
        pruning_method=prune.L1Unstructured,
        amount=share,
    )
    return optimizer.register_step_post_hook(lambda *_: None)


# %% wrong hold-masks: each forward pass begins with zeros
#    says: return in the next forward pass
hold_masks = changed(
    "return optimizer.register_step_post_hook(zero)",
    "return model.register_forward_pre_hook(zero)",
)


# %% wrong hold-masks: gradients of pruned weights are zeroed before each step
#    idea: masked-gradients-are-enough
def hold_masks(model, optimizer, share):
    ours.hold_masks(model, optimizer, share).remove()
    masks = [(layer.weight, layer.weight != 0) for layer in linears(model)]

    def hook(*_):
        for weight, mask in masks:
            weight.grad.mul_(mask)

    return optimizer.register_step_pre_hook(hook)


# %% wrong hold-masks: pruned weights no longer require a gradient
#    says: raised RuntimeError
def hold_masks(model, optimizer, share):
    ours.hold_masks(model, optimizer, share).remove()
    for layer in linears(model):
        layer.weight[layer.weight == 0].requires_grad_(False)
    return optimizer.register_step_post_hook(lambda *_: None)


# %% wrong hold-masks: the whole layers are frozen
#    says: have moved by 0
def hold_masks(model, optimizer, share):
    handle = ours.hold_masks(model, optimizer, share)
    for layer in linears(model):
        layer.weight.requires_grad_(False)
    return handle


# %% wrong hold-masks: int in place of round
#    says: the nearest integer is wanted
hold_masks = changed("round(share * len(sizes))", "int(share * len(sizes))")


# %% wrong hold-masks: a quantile
#    says: linear weights are 0 after your call
def hold_masks(model, optimizer, share):
    weights = [layer.weight for layer in linears(model)]
    limit = torch.cat([w.detach().abs().flatten() for w in weights]).quantile(share)
    masks = [w.detach().abs() > limit for w in weights]

    @torch.no_grad()
    def zero(*_):
        for w, mask in zip(weights, masks):
            w.mul_(mask)

    zero()
    return optimizer.register_step_post_hook(zero)


# %% wrong hold-masks: kthvalue fails at share 0
#    says: share 0
def hold_masks(model, optimizer, share):
    weights = [layer.weight for layer in linears(model)]
    sizes = torch.cat([w.detach().abs().flatten() for w in weights])
    gone = torch.zeros(len(sizes), dtype=torch.bool)
    limit = sizes.kthvalue(round(share * len(sizes))).values
    gone[sizes < limit] = True
    gone[(sizes == limit).nonzero().flatten()[: round(share * len(sizes)) - int(gone.sum())]] = True
    parts = gone.split([w.numel() for w in weights])

    @torch.no_grad()
    def zero(*_):
        for weight, part in zip(weights, parts):
            weight[part.view_as(weight)] = 0

    zero()
    return optimizer.register_step_post_hook(zero)


# %% wrong hold-masks: the largest are pruned
#    idea: topk-takes-the-smallest
hold_masks = changed("largest=False", "largest=True")


# %% wrong hold-masks: scores are chosen again after every step
#    says: after your call
def hold_masks(model, optimizer, share):
    def again(*_):
        ours.hold_masks(model, torch.optim.SGD(model.parameters()), share).remove()
        for layer in linears(model):
            layer.weight.data *= 0.5

    again()
    return optimizer.register_step_post_hook(again)


# %% wrong hold-masks: the model is a copy
#    says: linear weights are 0 after your call
def hold_masks(model, optimizer, share):
    import copy

    return ours.hold_masks(copy.deepcopy(model), optimizer, share)


# %% wrong hold-masks: the masks are put on the gradients' values too late, through a weight hook
#    idea: masked-gradients-are-enough
def hold_masks(model, optimizer, share):
    handle = ours.hold_masks(model, optimizer, share)
    handle.remove()
    for layer in linears(model):
        mask = (layer.weight != 0).float()
        layer.weight.register_hook(lambda g, mask=mask: g * mask)
    return handle


# %% wrong hold-masks: the hook returns, the handle does not
#    says: no method `remove`
def hold_masks(model, optimizer, share):
    ours.hold_masks(model, optimizer, share)
    return model


# %% wrong hold-masks: the handle of another hook
#    says: Which of your hooks still runs
def hold_masks(model, optimizer, share):
    ours.hold_masks(model, optimizer, share)
    return optimizer.register_step_post_hook(lambda *_: None)


# %% right hold-masks: optimizer.step is wrapped
class Wrapped:
    def __init__(self, model, optimizer, share):
        self.optimizer, self.step = optimizer, optimizer.step
        ours.hold_masks(model, optimizer, share).remove()
        self.masks = [(layer.weight, layer.weight == 0) for layer in linears(model)]
        optimizer.step = self

    def __call__(self, *args, **kwargs):
        made = self.step(*args, **kwargs)
        for weight, mask in self.masks:
            weight.data[mask] = 0
        return made

    def remove(self):
        self.optimizer.step = self.step


hold_masks = Wrapped


# %% wrong hold-masks: a hook for each layer, and all see the last one
#    says: All pruned weights of `6.weight` stay 0
def hold_masks(model, optimizer, share):
    ours.hold_masks(model, optimizer, share).remove()
    for layer in linears(model):
        mask = layer.weight != 0
        handle = optimizer.register_step_post_hook(lambda *_: layer.weight.data.mul_(mask))
    return handle


# %% wrong hold-masks: the hook writes 0 where a weight is still 0
#    idea: one-masking-is-enough
#    says: Which weights must become 0 again
def hold_masks(model, optimizer, share):
    ours.hold_masks(model, optimizer, share).remove()
    weights = [layer.weight for layer in linears(model)]

    def zero(*_):
        for weight in weights:
            weight.data[weight == 0] = 0

    return optimizer.register_step_post_hook(zero)


# %% wrong hold-masks: the gradients are masked, and the optimizer's memory is emptied
#    says: as if the optimizer had no steps behind it
def hold_masks(model, optimizer, share):
    ours.hold_masks(model, optimizer, share).remove()
    masks = [(layer.weight, layer.weight != 0) for layer in linears(model)]
    optimizer.state.clear()

    def hook(*_):
        for weight, mask in masks:
            weight.grad.mul_(mask)

    return optimizer.register_step_pre_hook(hook)


# %% wrong hold-masks: a hook for each layer, and the last one's handle
#    says: all pruned weights of `1.weight`
def hold_masks(model, optimizer, share):
    ours.hold_masks(model, optimizer, share).remove()
    for layer in linears(model):

        def zero(*_, weight=layer.weight, mask=layer.weight == 0):
            weight.data[mask] = 0

        handle = optimizer.register_step_post_hook(zero)
    return handle


# %% wrong hold-masks: nothing is zero before the first step
#    says: 0 of 256 linear weights are 0 after your call
hold_masks = changed("    zero()\n", "")


# %% wrong hold-masks: the hook takes one argument
#    says: raised TypeError
hold_masks = changed("def zero(*_):", "def zero(optimizer=None):")


# %% wrong hold-masks: zeros chosen anew by magnitude after every step
#    says: Do you choose them anew after each step
def hold_masks(model, optimizer, share):
    weights = [layer.weight for layer in linears(model)]
    count = round(share * sum(w.numel() for w in weights))

    @torch.no_grad()
    def zero(*_):
        sizes = torch.cat([w.abs().flatten() for w in weights])
        flags = torch.zeros_like(sizes, dtype=torch.bool)
        flags[sizes.topk(count, largest=False).indices] = True
        for w, flag in zip(weights, flags.split([w.numel() for w in weights])):
            w[flag.view_as(w)] = 0

    zero()
    return optimizer.register_step_post_hook(zero)


# %% wrong hold-masks: only layers at the top of the model
#    says: linear weights
def hold_masks(model, optimizer, share):
    top = nn.Sequential(*[m for m in model if isinstance(m, nn.Linear)])
    return ours.hold_masks(top, optimizer, share)


# %% wrong hold-masks: matrices of all kinds, embeddings as well
#    says: `0.weight`
hold_masks = changed(
    "layer.weight for layer in linears(model)", "p for p in model.parameters() if p.dim() > 1"
)


# %% wrong hold-masks: magnitudes in units of each layer's largest
#    says: the smallest magnitudes of all linear weights together
hold_masks = changed(
    "w.detach().abs().flatten()", "(w.detach().abs() / w.detach().abs().max()).flatten()"
)


# %% wrong hold-masks: the share that is kept
#    says: linear weights are 0 after your call
hold_masks = changed("round(share * len(sizes))", "round((1 - share) * len(sizes))")


# %% wrong hold-masks: no_grad forgotten, on .data for the first time alone
#    says: raised RuntimeError
hold_masks = changed("    @torch.no_grad()\n", "")


# %% right pack: numpy throughout
def pack(weight):
    w = weight.numpy()
    largest = np.abs(w).max(axis=1)
    scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    codes = np.rint(w / scale[:, None]).astype(np.int8)
    return {
        "shape": torch.tensor(w.shape),
        "mask": torch.from_numpy(np.packbits(codes != 0)),
        "values": torch.from_numpy(codes[codes != 0]),
        "scale": torch.from_numpy(scale),
    }


# %% right pack: what is kept follows from the weight, and codes of 0 stay
def pack(weight):
    kept = weight != 0
    scale = weight.abs().max(dim=1).values.clamp(min=1e-30) / 127
    codes = torch.round(weight / scale.unsqueeze(1)).clamp(-127, 127).char()
    bits = torch.from_numpy(np.packbits(kept.flatten().numpy()))
    return dict(scale=scale, values=codes[kept], mask=bits, shape=torch.tensor(list(weight.shape)))


# %% right pack: bits by arithmetic, scale computed in float64
def pack(weight):
    scale = weight.double().abs().amax(1) / 127
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    codes = (weight / scale[:, None]).round().to(torch.int8).flatten()
    kept = codes.ne(0)
    bits = F.pad(kept.int(), (0, -len(kept) % 8)).view(-1, 8)
    mask = (bits * torch.tensor([128, 64, 32, 16, 8, 4, 2, 1])).sum(1).to(torch.uint8)
    return {
        "shape": torch.tensor(weight.size(), dtype=torch.int32),
        "mask": mask,
        "values": codes.masked_select(kept),
        "scale": scale.float(),
    }


# %% right pack: loops
def pack(weight):
    rows, columns = weight.shape
    scales, values, bits = [], [], []
    for row in weight.tolist():
        scale = max(abs(x) for x in row) / 127 or 1.0
        scales.append(scale)
        for x in row:
            code = round(x / scale)
            bits.append(int(code != 0))
            if code:
                values.append(code)
    while len(bits) % 8:
        bits.append(0)
    mask = [int("".join(map(str, bits[i : i + 8])), 2) for i in range(0, len(bits), 8)]
    return {
        "shape": torch.tensor([rows, columns]),
        "mask": torch.tensor(mask, dtype=torch.uint8),
        "values": torch.tensor(values, dtype=torch.int8),
        "scale": torch.tensor(scales),
    }


# %% right pack: BF16 scales, rounded before they divide
def pack(weight):
    scale = (weight.abs().amax(dim=1) / 127).bfloat16()
    scale[scale == 0] = 1
    codes = (weight / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
    kept = codes != 0
    return {
        "shape": torch.tensor(weight.shape),
        "mask": torch.as_tensor(np.packbits(kept.numpy())),
        "values": codes[kept],
        "scale": scale,
    }


# %% right pack: torch's own quantize_per_channel
def pack(weight):
    scale = weight.abs().amax(1).div(127)
    scale = scale.masked_fill(scale == 0, 1e-3)
    q = torch.quantize_per_channel(
        weight, scale.double(), torch.zeros(len(scale), dtype=torch.int64), 0, torch.qint8
    )
    codes = q.int_repr()
    kept = codes.bool()
    mask = np.packbits(kept.numpy().reshape(-1))
    values = codes[kept].contiguous()
    return {
        "mask": torch.tensor(mask), "values": values, "scale": scale,
        "shape": torch.LongTensor(list(weight.shape)),
    }  # fmt: skip


# %% right pack: nonzero places, an OrderedDict
def pack(weight):
    from collections import OrderedDict

    scale = torch.linalg.vector_norm(weight, ord=float("inf"), dim=1) / 127
    scale += (scale == 0).float()
    codes = torch.round(weight / scale.reshape(-1, 1)).to(torch.int8)
    at = codes.nonzero(as_tuple=True)
    bits = np.zeros(weight.shape, dtype=bool)
    bits[at[0].numpy(), at[1].numpy()] = True
    return OrderedDict(
        shape=torch.tensor(weight.shape), mask=torch.from_numpy(np.packbits(bits)),
        values=codes[at], scale=scale,
    )  # fmt: skip


# %% wrong pack: a bool for each weight
#    idea: a-bool-takes-a-bit
pack = changed("mask = torch.from_numpy(np.packbits(kept.numpy()))", "mask = kept.view(-1)")


# %% wrong pack: a bool for each weight, as a matrix
#    says: Each of its elements takes a whole byte
pack = changed("mask = torch.from_numpy(np.packbits(kept.numpy()))", "mask = kept")


# %% wrong pack: ones and zeros in uint8
#    says: Each of its elements takes a whole byte
pack = changed(
    "mask = torch.from_numpy(np.packbits(kept.numpy()))", "mask = kept.flatten().to(torch.uint8)"
)


# %% wrong pack: places in int32
#    says: in 4 bytes
pack = changed(
    "mask = torch.from_numpy(np.packbits(kept.numpy()))",
    "mask = kept.flatten().nonzero().flatten().int()",
)


# %% wrong pack: each row padded to whole bytes
#    says: Each of your rows begins a new byte
pack = changed("np.packbits(kept.numpy())", "np.packbits(kept.numpy(), axis=1).ravel()")


# %% wrong pack: the lowest bit first
#    says: the lowest bit of a byte
pack = changed("np.packbits(kept.numpy())", "np.packbits(kept.numpy(), bitorder='little')")


# %% wrong pack: the mask marks the zeros
#    says: Which of the two bits means kept
pack = changed("np.packbits(kept.numpy())", "np.packbits(~kept.numpy())")


# %% wrong pack: column by column
#    says: the matrix is read column by column
pack = changed(
    "np.packbits(kept.numpy())", "np.packbits(kept.t().numpy())",
    "codes[kept]", "codes.t()[kept.t()]",
)  # fmt: skip


# %% wrong pack: a mask of the weight beside values of the codes
#    says: Choose once what is kept
pack = changed("np.packbits(kept.numpy())", "np.packbits((weight != 0).numpy())")


# %% wrong pack: everything is kept
#    says: Each of them puts a byte into the file
pack = changed("kept = codes != 0", "kept = torch.ones_like(codes, dtype=torch.bool)")


# %% wrong pack: an affine grid without an exact zero
#    says: comes back as
def pack(weight):
    low, high = weight.amin(1), weight.amax(1)
    scale = (high - low).clamp(min=1e-12) / 254
    codes = ((weight - low[:, None]) / scale[:, None] - 127).round().to(torch.int8)
    kept = codes != 0
    return {
        "shape": torch.tensor(weight.shape),
        "mask": torch.from_numpy(np.packbits(kept.numpy())),
        "values": codes[kept],
        "scale": scale,
    }


# %% wrong pack: the scale is a column
#    says: has shape (2, 1)
pack = changed('"scale": scale', '"scale": scale[:, None]')


# %% wrong pack: one scale, a number in a tensor
#    says: has shape (1,)
def pack(weight):
    scale = weight.abs().max() / 127
    codes = (weight / scale).round().to(torch.int8)
    kept = codes != 0
    mask = torch.from_numpy(np.packbits(kept.numpy()))
    return {
        "shape": torch.tensor(weight.shape),
        "mask": mask,
        "values": codes[kept],
        "scale": scale.view(1),
    }


# %% wrong pack: one scale, repeated
#    idea: weights-need-one-scale
#    says: in all rows
def pack(weight):
    packed = ours.pack(weight.flatten()[None])
    return packed | {
        "shape": torch.tensor(weight.shape), "scale": packed["scale"].repeat(len(weight)),
    }  # fmt: skip


# %% wrong pack: scales in BF16, rounded after they divided
#    says: In bfloat16 it is
pack = changed('"scale": scale', '"scale": scale.bfloat16()')


# %% wrong pack: scales in float64
#    says: at most 4 bytes
pack = changed('"scale": scale', '"scale": scale.double()')


# %% wrong pack: codes up to 128
#    says: int8 ends at 127
pack = changed("/ 127", "/ 128")


# %% wrong pack: codes up to 128, clamped
#    says: more than the 127 at which your codes end
pack = changed(
    "/ 127", "/ 128", ".round().to(torch.int8)", ".round().clamp(-127, 127).to(torch.int8)"
)


# %% wrong pack: floor in place of round
#    says: is rounded down
pack = changed(".round()", ".floor()")


# %% wrong pack: values are floats
#    says: dtype torch.float32
pack = changed("codes[kept]", "weight[kept]")


# %% wrong pack: values are uint8
#    says: dtype torch.uint8
pack = changed(".to(torch.int8)", ".to(torch.uint8)")


# %% wrong pack: the scale is the largest magnitude
#    says: comes back as
pack = changed(
    '"scale": scale',
    '"scale": scale * 127',
    "(weight / scale[:, None])",
    "(weight / scale[:, None])",
)


# %% wrong pack: numpy arrays in the dict
#    says: safetensors cannot write your dict
def pack(weight):
    return {key: value.numpy() for key, value in ours.pack(weight).items()}


# %% wrong pack: the caller's weight is divided
#    says: Which line writes into it
def pack(weight):
    scale = weight.abs().amax(dim=1) / 127
    scale[scale == 0] = 1
    codes = weight.div_(scale[:, None]).round().to(torch.int8)
    kept = codes != 0
    mask = torch.from_numpy(np.packbits(kept.numpy()))
    return {
        "shape": torch.tensor(weight.shape),
        "mask": mask,
        "values": codes[kept],
        "scale": scale,
    }


# %% wrong pack: a row of zeros, 0 / 0 repaired in the codes alone
#    idea: zeros-may-have-scale-0
def pack(weight):
    scale = weight.abs().amax(dim=1) / 127
    codes = (weight / scale[:, None]).nan_to_num(0).round().to(torch.int8)
    kept = codes != 0
    mask = torch.from_numpy(np.packbits(kept.numpy()))
    return {
        "shape": torch.tensor(weight.shape),
        "mask": mask,
        "values": codes[kept],
        "scale": scale,
    }


# %% wrong pack: a guard of 1e-8 for rows of zeros
#    says: and your scale is
pack = changed("scale[scale == 0] = 1.0", "scale = scale.clamp(min=1e-8)")


# %% wrong pack: 1e-8 is added to every scale
#    says: and your scale is
pack = changed("scale[scale == 0] = 1.0", "scale += 1e-8")


# %% wrong pack: the caller's shape is left out
#    says: has the keys
def pack(weight):
    packed = ours.pack(weight)
    del packed["shape"]
    return packed


# %% wrong pack: torch.Size for a tensor
#    says: a tensor is asked for
pack = changed("torch.tensor(weight.shape)", "weight.shape")


# %% wrong pack: a scale for each column
#    says: scale
def pack(weight):
    packed = ours.pack(weight.t().contiguous())
    return packed | {"shape": torch.tensor(weight.shape)}


# %% right weigh-in: one hidden size less, half of it pruned
entry = {"values": "INT8", "prune": 0.6, "rank": None, "hidden": 56}


# %% right weigh-in: numpy numbers
entry = dict(hidden=np.int64(64), rank=None, prune=np.float32(0.75), values="int8")


# %% wrong weigh-in: too small a network
#    says: mean accuracy
#    says: bytes are still free
entry = dict(hidden=32, rank=None, prune=0.0, values="int8")


# %% wrong weigh-in: factors that are larger than their weight
#    says: The two factors of rank 64 hold 8,192 numbers
entry = dict(hidden=64, rank=64, prune=0.75, values="int8")


# %% wrong weigh-in: the large one, pruned very much
#    idea: pruning-has-no-floor
entry = dict(hidden=256, rank=None, prune=0.95, values="int8")


# %% wrong weigh-in: the large one, of low rank
#    says: bytes
entry = dict(hidden=256, rank=8, prune=0.7, values="int8")


# %% wrong weigh-in: FP32 values
#    idea: pruned-weights-stay-wide
entry = dict(hidden=48, rank=None, prune=0.6, values="fp32")


# %% wrong weigh-in: a share in percent
#    says: a share from 0 to below 1
entry = dict(hidden=64, rank=None, prune=70, values="int8")


# %% wrong weigh-in: another dtype
#    says: one of fp32, fp16, int8
entry = dict(hidden=64, rank=None, prune=0.7, values="int4")


# %% wrong weigh-in: a rank above the layer's
#    says: None or 1 to hidden
entry = dict(hidden=64, rank=65, prune=0.7, values="int8")


# %% wrong weigh-in: a key too few
#    says: has the keys
entry = dict(hidden=64, prune=0.7, values="int8")


# %% right factorise: functional, parameters replaced
def factorise(linear, rank):
    U, S, Vh = torch.linalg.svd(linear.weight.data.double(), full_matrices=False)
    half = torch.diag(S[:rank] ** 0.5)
    first = nn.Linear(linear.in_features, rank, bias=False)
    second = nn.Linear(rank, linear.out_features, bias=linear.bias is not None)
    first.weight = nn.Parameter((half @ Vh[:rank]).to(linear.weight.dtype))
    second.weight = nn.Parameter((U[:, :rank] @ half).to(linear.weight.dtype))
    if linear.bias is not None:
        second.bias = nn.Parameter(linear.bias.data.clone())
    return nn.Sequential(first, second)


# %% right factorise: torch.svd, which returns V
def factorise(linear, rank):
    dtype = linear.weight.dtype
    U, S, V = torch.svd(linear.weight.detach().to(torch.float32))
    root = S.sqrt()
    layers = nn.Sequential(
        nn.Linear(linear.in_features, rank, bias=False, dtype=dtype),
        nn.Linear(rank, linear.out_features, bias=linear.bias is not None, dtype=dtype),
    )
    layers[0].weight.data.copy_((V[:, :rank] * root[:rank]).T)
    layers[1].weight.data.copy_(U[:, :rank] * root[:rank])
    if linear.bias is not None:
        layers[1].bias.data.copy_(linear.bias)
    return layers


# %% right factorise: numpy
def factorise(linear, rank):
    w = linear.weight.detach().float().numpy()
    u, s, vh = np.linalg.svd(w, full_matrices=False)
    root = np.sqrt(s[:rank])
    down = nn.Linear(w.shape[1], rank, bias=False)
    up = nn.Linear(rank, w.shape[0], bias=linear.bias is not None)
    state = {"0.weight": torch.from_numpy(root[:, None] * vh[:rank])}
    state["1.weight"] = torch.from_numpy(u[:, :rank] * root)
    if linear.bias is not None:
        state["1.bias"] = linear.bias.detach().float()
    both = nn.Sequential(down, up)
    both.load_state_dict(state)
    return both.to(linear.weight.dtype)


# %% right factorise: eigenvectors of W.T @ W in float64
def factorise(linear, rank):
    w = linear.weight.detach().double()
    values, vectors = torch.linalg.eigh(w.T @ w)
    v = vectors[:, -rank:].flip(1)
    product = w @ v
    norms = product.norm(dim=0).sqrt()
    down = nn.Linear(linear.in_features, rank, bias=False)
    up = nn.Linear(rank, linear.out_features, bias=linear.bias is not None)
    with torch.no_grad():
        down.weight.copy_(v.T * norms[:, None])
        up.weight.copy_(product / norms)
        if up.bias is not None:
            up.bias.copy_(linear.bias)
    return nn.Sequential(down, up).to(linear.weight.dtype)


# %% right factorise: full matrices, and a state dict
def factorise(linear, rank):
    u, s, vh = torch.linalg.svd(linear.weight.detach().to(torch.float64))
    root = s[:rank].sqrt()
    made = nn.Sequential(
        nn.Linear(linear.in_features, rank, bias=False),
        nn.Linear(rank, linear.out_features, bias=linear.bias is not None),
    )
    state = {"0.weight": root[:, None] * vh[:rank, :], "1.weight": u[:, :rank] * root[None]}
    if linear.bias is not None:
        state["1.bias"] = linear.bias.detach()
    made.load_state_dict(state)
    return made.to(linear.weight)


# %% right factorise: a third of the power here, two thirds there
def factorise(linear, rank):
    u, s, vh = torch.linalg.svd(linear.weight.float(), full_matrices=False)
    s = s[:rank, None]
    down = nn.Linear(linear.in_features, rank, bias=False)
    up = nn.Linear(rank, linear.out_features, bias=linear.bias is not None)
    down.weight.data = s ** (2 / 3) * vh[:rank].detach()
    up.weight.data = (s ** (1 / 3) * u[:, :rank].T).T.detach().contiguous()
    if linear.bias is not None:
        up.bias.data = linear.bias.detach().clone()
    return nn.Sequential(down, up).to(dtype=linear.weight.dtype)


# %% wrong factorise: the smallest singular values
#    says: smallest singular values
factorise = changed(
    "vh[:rank]", "vh[-rank:]", "u[:, :rank]", "u[:, -rank:]", "s[:rank]", "s[-rank:]"
)


# %% wrong factorise: the bias in the first layer
#    says: Which layer adds after both matmuls
def factorise(linear, rank):
    both = ours.factorise(linear, rank)
    if linear.bias is not None:
        both[0].bias = nn.Parameter(linear.bias.detach()[:rank].clone())
        both[1].bias = None
    return both


# %% wrong factorise: nn.Linear's own random biases
#    says: layer 0 has a bias
factorise = changed("rank, bias=False", "rank")


# %% wrong factorise: the bias is not copied
#    says: layer 1's bias is
factorise = changed("            up.bias.copy_(linear.bias)\n", "            pass\n")


# %% wrong factorise: the bias is left out
#    says: layer 1's bias is none
def factorise(linear, rank):
    both = ours.factorise(linear, rank)
    both[1].bias = None
    return both


# %% wrong factorise: float32 comes back for a BF16 layer
#    says: the caller's
factorise = changed(".to(linear.weight.dtype)", "")


# %% wrong factorise: a randomized SVD
#    says: The best matrix of rank
def factorise(linear, rank):
    torch.manual_seed(0)
    u, s, v = torch.svd_lowrank(linear.weight.detach().float(), q=rank, niter=0)
    both = ours.factorise(linear, rank)
    with torch.no_grad():
        both[0].weight.copy_(s.sqrt()[:, None] * v.T)
        both[1].weight.copy_(u * s.sqrt())
    return both


# %% wrong factorise: values in the first factor
#    idea: the-values-may-stand-in-one-factor
#    says: in FP16, layer 0
def factorise(linear, rank):
    u, s, vh = torch.linalg.svd(linear.weight.detach().float(), full_matrices=False)
    both = ours.factorise(linear, rank)
    with torch.no_grad():
        both[0].weight.copy_(s[:rank, None] * vh[:rank])
        both[1].weight.copy_(u[:, :rank])
    return both


# %% wrong factorise: no values at all
#    idea: low-rank-needs-directions-alone
def factorise(linear, rank):
    u, _, vh = torch.linalg.svd(linear.weight.detach().float(), full_matrices=False)
    both = ours.factorise(linear, rank)
    with torch.no_grad():
        both[0].weight.copy_(vh[:rank])
        both[1].weight.copy_(u[:, :rank])
    return both


# %% wrong factorise: one dense layer of low rank
#    says: an nn.Sequential of two nn.Linear is wanted
def factorise(linear, rank):
    both = ours.factorise(linear, rank)
    dense = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None)
    dense.weight.data = both[1].weight.data @ both[0].weight.data
    return dense


# %% wrong factorise: the layers in the other order
#    says: layer 0 has shape
def factorise(linear, rank):
    both = ours.factorise(linear, rank)
    return nn.Sequential(both[1], both[0])


# %% wrong factorise: a ReLU between the layers
#    says: an nn.Sequential of two nn.Linear is wanted
def factorise(linear, rank):
    both = ours.factorise(linear, rank)
    return nn.Sequential(both[0], nn.ReLU(), both[1])


# %% wrong factorise: the caller's layer is cut too
#    says: the caller's weight is another than before
def factorise(linear, rank):
    both = ours.factorise(linear, rank)
    with torch.no_grad():
        linear.weight.copy_((both[1].weight.float() @ both[0].weight.float()))
    return both


# %% wrong factorise: principal components, which are centred
#    says: The best matrix of rank
def factorise(linear, rank):
    torch.manual_seed(0)
    u, s, v = torch.pca_lowrank(linear.weight.detach().float(), q=rank)
    both = ours.factorise(linear, rank)
    with torch.no_grad():
        both[0].weight.copy_(s.sqrt()[:, None] * v.T)
        both[1].weight.copy_(u * s.sqrt())
    return both


# %% wrong factorise: the weight less its mean row
#    says: if the mean row is subtracted first
def factorise(linear, rank):
    w = linear.weight.detach().float()
    u, s, vh = torch.linalg.svd(w - w.mean(0), full_matrices=False)
    both = ours.factorise(linear, rank)
    with torch.no_grad():
        both[0].weight.copy_(s[:rank, None].sqrt() * vh[:rank])
        both[1].weight.copy_(u[:, :rank] * s[:rank].sqrt())
    return both


# %% wrong factorise: QR in place of the SVD
#    says: keeps the largest singular values
def factorise(linear, rank):
    q, r = torch.linalg.qr(linear.weight.detach().float())
    both = ours.factorise(linear, rank)
    with torch.no_grad():
        both[0].weight.copy_(r[:rank])
        both[1].weight.copy_(q[:, :rank])
    return both


# %% wrong factorise: the caller's layer becomes float32
#    says: change the layer itself
factorise = changed(
    "linear.weight.detach().float()", "linear.float().weight.detach()",
    ".to(linear.weight.dtype)", ".to(kind)",
    "    root = s[:rank].sqrt()\n", "    root = s[:rank].sqrt()\n    kind = torch.float32\n",
)  # fmt: skip


# %% wrong factorise: no_grad forgotten
#    says: raised RuntimeError
factorise = changed("with torch.no_grad():", "if True:")


# %% wrong factorise: the rank is one too few
#    says: layer 0 has shape
def factorise(linear, rank):
    return ours.factorise(linear, max(rank - 1, 1))
