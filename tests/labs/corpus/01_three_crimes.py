# Answers to lab 01 that the author of its checks had not foreseen: see tests/corpus.py.
import math
from collections import OrderedDict, defaultdict

import numpy as np
import torch
from torch.nn.functional import cross_entropy

BYTES = {"weights": 4, "gradients": 4, "adam": 8, "copies": 2}


# %% right ledger: a defaultdict
def ledger(parameters, activations):
    found = defaultdict(int, activations=2 * activations)
    for item, each in BYTES.items():
        found[item] += each * parameters
    return found


# %% right ledger: an OrderedDict, in another order
def ledger(parameters, activations):
    return OrderedDict(
        activations=2 * activations,
        **{item: each * parameters for item, each in reversed(BYTES.items())},
    )


# %% right ledger: numpy's integers
def ledger(parameters, activations):
    counts = np.array([4, 4, 8, 2], dtype=np.int64) * parameters
    return {**dict(zip(BYTES, counts)), "activations": np.int64(2 * activations)}


# %% right ledger: floats
def ledger(parameters, activations):
    return {item: each * float(parameters) for item, each in BYTES.items()} | {
        "activations": 2.0 * activations
    }


# %% right ledger: a comprehension over pairs
def ledger(parameters, activations):
    pairs = [("weights", 4), ("gradients", 4), ("adam", 8), ("copies", 2)]
    return {item: each * parameters for item, each in pairs} | dict(activations=2 * activations)


# %% right ledger: from bits
def ledger(parameters, activations):
    bits = {"weights": 32, "gradients": 32, "adam": 64, "copies": 16}
    found = {item: each * parameters // 8 for item, each in bits.items()}
    return found | {"activations": 16 * activations // 8}


# %% wrong ledger: a list
#    says: a dict with the keys weights, gradients, adam, copies, activations is asked for
def ledger(parameters, activations):
    return [4 * parameters, 4 * parameters, 8 * parameters, 2 * parameters, 2 * activations]


# %% wrong ledger: bytes of one
#    says: the same for every model
def ledger(parameters, activations):
    return {**BYTES, "activations": 2}


# %% wrong ledger: moments in 16 bits
#    idea: adam-keeps-one-number
def ledger(parameters, activations):
    return {item: each * parameters for item, each in BYTES.items()} | {
        "adam": 2 * 2 * parameters, "activations": 2 * activations
    }


# %% wrong ledger: the copies are forgotten in the sum and in the dict
#    says: `ledger(1, 0)`
def ledger(parameters, activations):
    return {item: BYTES[item] * parameters for item in ("weights", "gradients", "adam")}


# %% wrong ledger: ZeRO's 16 bytes a parameter
#    says: as the ZeRO paper counts it
#    never: Not everything halves
def ledger(parameters, activations):
    each = {"weights": 2, "gradients": 2, "adam": 12, "copies": 0}
    return {item: n * parameters for item, n in each.items()} | {"activations": 2 * activations}


# %% wrong ledger: bits for bytes
#    says: return bytes, not bits
def ledger(parameters, activations):
    return {item: 8 * each * parameters for item, each in BYTES.items()} | {
        "activations": 16 * activations
    }


# %% right pardon: an OrderedDict
pardon = OrderedDict(precision="bf16")


# %% wrong pardon: None
#    says: pardon is
pardon = None


# %% wrong ledger: ZeRO's ledger with its parts in other entries
#    says: as the ZeRO paper counts it
def ledger(parameters, activations):
    each = {"weights": 2, "gradients": 2, "adam": 8, "copies": 4}
    return {item: n * parameters for item, n in each.items()} | {"activations": 2 * activations}


# %% wrong ledger: a master copy beside Adam's moments
#    says: no second copy is kept
def ledger(parameters, activations):
    return ours.ledger(parameters, activations) | {"adam": 12 * parameters}


# %% wrong ledger: the copies are counted with the weights
#    says: an entry of their own
def ledger(parameters, activations):
    return ours.ledger(parameters, activations) | {"weights": 6 * parameters, "copies": 0}


# %% wrong ledger: copies in FP32
#    says: one 16-bit copy of each weight
def ledger(parameters, activations):
    return ours.ledger(parameters, activations) | {"copies": 4 * parameters}


# %% wrong ledger: no copies, and activations in FP32
#    says: one 16-bit copy of each weight
#    never: The output of an op that ran in 16 bits is
def ledger(parameters, activations):
    found = ours.ledger(parameters, activations)
    return found | {"copies": 0, "activations": 4 * activations}


# %% wrong ledger: copies for each activation
#    says: Yours grows with the number of activations
def ledger(parameters, activations):
    return ours.ledger(parameters, activations) | {"copies": 2 * activations}


# %% wrong ledger: gigabytes
#    says: 1e-09 times the right one
def ledger(parameters, activations):
    return {item: n / 1e9 for item, n in ours.ledger(parameters, activations).items()}


# %% wrong ledger: numbers as text
#    says: one number is asked for
def ledger(parameters, activations):
    return {item: f"{n} B" for item, n in ours.ledger(parameters, activations).items()}


# %% wrong ledger: all in 16 bits
#    idea: amp-halves-everything
def ledger(parameters, activations):
    return {item: n // 2 for item, n in ours.ledger(parameters, activations).items()} | {
        "copies": 0, "activations": 2 * activations
    }


# %% right pardon: FP16 under autocast
pardon = {"precision": "fp16"}


# %% right pardon: by dict
pardon = dict(precision="bf16")


# %% right pardon: in capitals
pardon = {"precision": "BF16"}


# %% right pardon: numpy's text
pardon = {"precision": np.array(["bf16"])[0]}


# %% right pardon: with a blank
pardon = {"precision": "bf16 "}


# %% wrong pardon: eps 0
#    says: Adam divides by eps alone
#    never: was never 0
pardon = {"eps": 0.0}


# %% wrong pardon: a smaller eps
#    says: the loss ends at
#    never: eps stands in
pardon = {"eps": 1e-12}


# %% wrong pardon: a rate that happens to end there
#    idea: a-faster-run-is-a-repair
pardon = {"lr": 1.22e-4}


# %% wrong pardon: no loss at all
#    says: the weights cannot learn
#    never: division
pardon = {"loss_weight": 0}


# %% wrong pardon: a smaller loss
#    says: the loss ends at
#    never: divides the factor out
pardon = {"loss_weight": 0.5}


# %% wrong pardon: a dtype
#    says: a name is wanted
pardon = {"precision": np.float16(1)}


# %% wrong pardon: a bare name
#    says: a dict with one setting
pardon = "bf16"


# %% wrong pardon: two settings
#    says: a dict with one setting
pardon = {"precision": "bf16", "eps": 1e-6}


# %% wrong pardon: a precision that does not exist
#    says: The run refuses
pardon = {"precision": "autocast"}


# %% wrong pardon: a negative rate
#    says: The run refuses
pardon = {"lr": -1e-4}


# %% wrong pardon: more steps
#    says: choose one setting among
pardon = {"steps": 600}


# %% wrong pardon: FP32
#    idea: sixteen-bits-must-go
pardon = {"precision": "fp32"}


# %% right witness: a hook that is a function, and try
def witness(layer, optimizer, step):
    dtypes = []

    def look(module, inputs, output):
        dtypes.append(output.dtype)

    handle = layer.register_forward_hook(look)
    try:
        loss = step()
    finally:
        handle.remove()
    weight = layer.weight
    return {
        "parameter": weight.dtype, "gradient": weight.grad.dtype, "activation": dtypes[-1],
        "loss": loss.dtype, "state": optimizer.state[weight]["exp_avg"].dtype,
    }


# %% right witness: an OrderedDict
def witness(layer, optimizer, step):
    return OrderedDict(ours.witness(layer, optimizer, step))


# %% right witness: the output is kept, and read afterwards
def witness(layer, optimizer, step):
    kept = {}
    handle = layer.register_forward_hook(lambda layer, args, out: kept.update(out=out.detach()))
    loss = step()
    handle.remove()
    tensors = dict(
        parameter=layer.weight.data, activation=kept["out"], loss=loss.detach(),
        gradient=layer.weight.grad, state=optimizer.state[layer.weight]["exp_avg_sq"],
    )
    return {role: x.dtype for role, x in tensors.items()}


# %% right witness: a hook for all modules, and the weight by name
def witness(layer, optimizer, step):
    named, seen = dict(layer.named_parameters()), {}

    def look(module, inputs, output):
        if module is layer:
            seen["activation"] = output.dtype

    with torch.nn.modules.module.register_module_forward_hook(look):
        seen["loss"] = step().dtype
    weight = named["weight"]
    seen["parameter"], seen["gradient"] = weight.dtype, weight.grad.dtype
    return seen | {"state": optimizer.state[weight]["exp_avg"].dtype}


# %% right witness: forward is wrapped
def witness(layer, optimizer, step):
    outputs, forward = [], layer.forward

    def spy(x):
        outputs.append(forward(x))
        return outputs[-1]

    layer.forward = spy
    loss = step()
    del layer.forward
    weight = layer.weight
    return dict(
        loss=loss.dtype, activation=outputs[0].dtype, parameter=weight.dtype,
        gradient=weight.grad.dtype, state=optimizer.state[weight]["exp_avg"].dtype,
    )


# %% right witness: every moment is asked
def witness(layer, optimizer, step):
    found = ours.witness(layer, optimizer, step)
    moments = [x for x in optimizer.state[layer.weight].values() if x.dim()]
    (state,) = {x.dtype for x in moments}
    return found | {"state": state}


# %% wrong witness: any other weight's moments
#    says: an FP16 model, its BatchNorm in FP32: you report state float16
def witness(layer, optimizer, step):
    found = ours.witness(layer, optimizer, step)
    return found | {"state": next(iter(optimizer.state.values()))["exp_avg"].dtype}


# %% wrong witness: the gradient of the bias
#    says: which has no bias: AttributeError
def witness(layer, optimizer, step):
    return changed("layer.weight.grad.dtype", "layer.bias.grad.dtype")(layer, optimizer, step)


# %% wrong witness: the loss is what autocast computes in
#    says: what `step()` returns
def witness(layer, optimizer, step):
    found = ours.witness(layer, optimizer, step)
    return found | {"loss": found["activation"]}


# %% wrong witness: the loss as a number
#    says: loss is the type float; a dtype is wanted
def witness(layer, optimizer, step):
    return changed("step().dtype", "type(step().item())")(layer, optimizer, step)


# %% wrong witness: the hook is gone before the step
#    says: your dict has no activation
def witness(layer, optimizer, step):
    seen = {}
    layer.register_forward_hook(lambda l, i, o: seen.update(activation=o.dtype)).remove()
    seen["loss"] = step().dtype
    seen["parameter"], seen["gradient"] = layer.weight.dtype, layer.weight.grad.dtype
    return seen | {"state": optimizer.state[layer.weight]["exp_avg"].dtype}


# %% wrong witness: text
#    says: 'torch.float32', a str; a dtype is wanted
def witness(layer, optimizer, step):
    return {role: str(dtype) for role, dtype in ours.witness(layer, optimizer, step).items()}


# %% wrong witness: one more step
#    says: ran 2 times
def witness(layer, optimizer, step):
    step()
    return ours.witness(layer, optimizer, step)


# %% wrong witness: the gradient before the step
#    says: AttributeError
def witness(layer, optimizer, step):
    gradient = layer.weight.grad.dtype
    return ours.witness(layer, optimizer, step) | {"gradient": gradient}


# %% wrong witness: all are float32
#    says: you report activation float32; it is float16
def witness(layer, optimizer, step):
    step()
    return dict.fromkeys(("parameter", "activation", "loss", "gradient", "state"), torch.float32)


# %% wrong witness: the state is the whole dict
#    says: state is
def witness(layer, optimizer, step):
    return ours.witness(layer, optimizer, step) | {"state": optimizer.state[layer.weight]}


# %% wrong witness: the gradient of the output
#    idea: gradients-follow-the-activations
def witness(layer, optimizer, step):
    seen = {}
    hook = layer.register_full_backward_hook(lambda l, i, o: seen.update(gradient=o[0].dtype))
    found = ours.witness(layer, optimizer, step)
    hook.remove()
    return found | seen


# %% right first-nonfinite: next and a generator
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if not torch.isfinite(x).all()), None)


# %% right first-nonfinite: inf or NaN
def first_nonfinite(named_tensors):
    for name, x in named_tensors:
        if x.isnan().any() or x.isinf().any():
            return name


# %% right first-nonfinite: numpy in float64
def first_nonfinite(named_tensors):
    for name, x in named_tensors:
        if not np.isfinite(x.double().numpy()).all():
            return name


# %% right first-nonfinite: a number minus itself
def first_nonfinite(named_tensors):
    for name, x in named_tensors:
        if (x - x != 0).sum().item():
            return name


# %% right first-nonfinite: count
def first_nonfinite(named_tensors):
    bad = [name for name, x in named_tensors if int(torch.isfinite(x).sum()) < x.numel()]
    return bad[0] if bad else None


# %% right first-nonfinite: Python's numbers
def first_nonfinite(named_tensors):
    for name, x in named_tensors:
        if any(not math.isfinite(one) for one in x.flatten().tolist()):
            return str(name)


# %% wrong first-nonfinite: inf only
#    says: 'hidden' holds NaN
#    never: comparison
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if x.isinf().any()), None)


# %% wrong first-nonfinite: through float32
#    says: Each number in 'large' is finite
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if not x.float().isfinite().all()), None)


# %% wrong first-nonfinite: through half
#    says: Each number in 'weight' is finite
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if not x.half().isfinite().all()), None)


# %% wrong first-nonfinite: above the largest
#    says: 'hidden' holds NaN
def first_nonfinite(named_tensors):
    for name, x in named_tensors:
        if x.is_floating_point() and (x.abs() > torch.finfo(x.dtype).max).any():
            return name


# %% wrong first-nonfinite: a comparison with a fixed limit
#    idea: comparisons-find-nan
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if (abs(x) > 3.4e38).any()), None)


# %% wrong first-nonfinite: the pair
#    says: Return one name, or None
def first_nonfinite(named_tensors):
    return next(((name, x) for name, x in named_tensors if not x.isfinite().all()), None)


# %% wrong first-nonfinite: False for none
#    says: None is wanted
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if not x.isfinite().all()), False)


# %% wrong first-nonfinite: the largest element
#    says: an empty tensor, then a loss of inf
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if not x.abs().max().isfinite()), None)


# %% wrong first-nonfinite: all of them
#    says: Return one name, or None
def first_nonfinite(named_tensors):
    return [name for name, x in named_tensors if not x.isfinite().all()]


# %% wrong first-nonfinite: the mean
#    idea: finite-terms-finite-sum
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if not x.sum().isfinite()), None)


# %% wrong first-nonfinite: only +inf and NaN
#    says: 'mask' holds -inf
def first_nonfinite(named_tensors):
    return next((n for n, x in named_tensors if x.isnan().any() or x.isposinf().any()), None)


# %% wrong first-nonfinite: plain numbers are expected
#    says: ValueError: only one element
def first_nonfinite(named_tensors):
    return next((name for name, x in named_tensors if not math.isfinite(x)), None)


# %% right bf16-step: the loss from float32 logits, after the block
def bf16_step(model, optimizer, images, labels):
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(images)
    loss = cross_entropy(logits.float(), labels)
    loss.backward()
    optimizer.step()
    return float(loss)


# %% right bf16-step: autocast as a decorator
@torch.autocast("cpu", dtype=torch.bfloat16)
def loss_of(model, images, labels):
    return torch.nn.CrossEntropyLoss()(model(images), labels)


def bf16_step(model, optimizer, images, labels):
    loss = loss_of(model, images, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().numpy()


# %% right bf16-step: log_softmax and nll_loss
def bf16_step(model, optimizer, images, labels):
    for p in model.parameters():
        p.grad = None
    with torch.amp.autocast(device_type=images.device.type, dtype=torch.bfloat16):
        loss = torch.nn.functional.nll_loss(model(images).float().log_softmax(dim=1), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


# %% right bf16-step: a scaler that is switched off
def bf16_step(model, optimizer, images, labels):
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


# %% right bf16-step: gradients by torch.autograd.grad
def bf16_step(model, optimizer, images, labels):
    parameters = list(model.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels)
    for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
        p.grad = gradient
    optimizer.step()
    return loss.item()


# %% right bf16-step: zero_grad at both ends
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad(set_to_none=False)
    context = torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False)
    with context:
        loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return np.float32(loss.item())


# %% wrong bf16-step: the FP32 step
#    says: The linear layers returned float32
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


# %% wrong bf16-step: autocast for CUDA
#    says: The linear layers returned float32
def bf16_step(model, optimizer, images, labels):
    return changed("images.device.type", '"cuda"')(model, optimizer, images, labels)


# %% wrong bf16-step: FP16
#    says: The linear layers returned float16
def bf16_step(model, optimizer, images, labels):
    return changed("bfloat16", "float16")(model, optimizer, images, labels)


# %% wrong bf16-step: zero_grad only after the step
#    says: gradients of an earlier step
def bf16_step(model, optimizer, images, labels):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


# %% wrong bf16-step: zero_grad between backward and the step
#    says: moved no weight
def bf16_step(model, optimizer, images, labels):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


# %% wrong bf16-step: no step
#    says: Step 1 moved no weight
def bf16_step(model, optimizer, images, labels):
    return changed("optimizer.step()", "pass")(model, optimizer, images, labels)


# %% wrong bf16-step: everything in the block
#    says: ran inside the autocast block
def bf16_step(model, optimizer, images, labels):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


# %% wrong bf16-step: the model and the images are cast
#    says: the model itself was cast
#    idea: half-is-mixed-precision
def bf16_step(model, optimizer, images, labels):
    model.bfloat16()
    optimizer.zero_grad()
    loss = cross_entropy(model(images.bfloat16()), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


# %% wrong bf16-step: a BF16 loss
#    says: the loss was computed in 16 bits
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(images)
    loss = cross_entropy(logits, labels)
    loss.backward()
    optimizer.step()
    return loss.item()


# %% wrong bf16-step: the loss is summed
#    says: Step 1 returns
def bf16_step(model, optimizer, images, labels):
    return changed("labels)\n    loss", 'labels, reduction="sum")\n    loss')(
        model, optimizer, images, labels
    )


# %% wrong bf16-step: nothing is returned
#    says: Step 1 returns None
def bf16_step(model, optimizer, images, labels):
    ours.bf16_step(model, optimizer, images, labels)


# %% wrong bf16-step: the loss after the step
#    says: returned bfloat16 and float32
def bf16_step(model, optimizer, images, labels):
    ours.bf16_step(model, optimizer, images, labels)
    return cross_entropy(model(images), labels).item()


# %% wrong bf16-step: a live loss scale that nobody divides
#    says: moved the weights by
def bf16_step(model, optimizer, images, labels):
    return changed("loss.backward()", "(256 * loss).backward()")(model, optimizer, images, labels)


# %% wrong bf16-step: only the loss is in the block
#    says: The linear layers returned float32
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    logits = model(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(logits, labels)
    loss.backward()
    optimizer.step()
    return loss.item()


# %% right lost-updates: in place, on a copy
def lost_updates(weight, update):
    new = weight.clone()
    new += update
    same, tried = new.eq(weight), update.ne(0)
    return float((same & tried).sum() / max(int(tried.sum()), 1))


# %% right lost-updates: count_nonzero
def lost_updates(weight, update):
    tried = torch.count_nonzero(update)
    moved = torch.count_nonzero((weight.float() + update).to(weight.dtype) - weight)
    return ((tried - moved) / tried).item() if tried else 0.0


# %% right lost-updates: numpy
def lost_updates(weight, update):
    new = torch.add(weight, update).to(weight.dtype).float().numpy().ravel()
    old, step = weight.float().numpy().ravel(), update.numpy().ravel()
    tried = step != 0
    return np.mean(new[tried] == old[tried]) if tried.any() else 0


# %% right lost-updates: one by one
def lost_updates(weight, update):
    pairs = [(w, u) for w, u in zip(weight.flatten(), update.flatten()) if u]
    lost = sum(bool((w + u).to(weight.dtype) == w) for w, u in pairs)
    return lost / len(pairs) if pairs else 0.0


# %% right lost-updates: a 0-d tensor
def lost_updates(weight, update):
    where = update.nonzero(as_tuple=True)
    old = weight[where]
    if not len(old):
        return torch.tensor(0.0)
    return (old.add(update[where]).type_as(weight) == old).double().mean()


# %% right lost-updates: type, and nan_to_num
def lost_updates(weight, update):
    same = (weight + update).type(weight.dtype) == weight
    return torch.where(update != 0, same, torch.nan).nanmean().nan_to_num(0.0).item()


# %% wrong lost-updates: the sum stays float32
#    says: 1 + 0.00195 stored in bfloat16 is 1
def lost_updates(weight, update):
    tried = update != 0
    return (weight + update == weight)[tried].float().mean().item() if tried.any() else 0.0


# %% wrong lost-updates: NaN for no update
#    says: only updates of 0
def lost_updates(weight, update):
    return ((weight + update).to(weight.dtype) == weight)[update != 0].float().mean().item()


# %% wrong lost-updates: the share that moves
#    says: 1 of 3 updates other than 0
def lost_updates(weight, update):
    tried = update != 0
    return 1.0 - ours.lost_updates(weight, update) if tried.any() else 0.0


# %% wrong lost-updates: a count
#    says: 2 of 4 updates
def lost_updates(weight, update):
    return int(((weight + update).to(weight.dtype) == weight)[update != 0].sum())


# %% wrong lost-updates: percent
#    says: 2 of 4 updates
def lost_updates(weight, update):
    return 100 * ours.lost_updates(weight, update)


# %% wrong lost-updates: in place
#    says: changed the weights
def lost_updates(weight, update):
    old, tried = weight.clone(), update != 0
    weight += update
    return (weight == old)[tried].float().mean().item() if tried.any() else 0.0


# %% wrong lost-updates: BF16 for every weight
#    says: stored in
def lost_updates(weight, update):
    tried = update != 0
    if not tried.any():
        return 0.0
    return ((weight + update).bfloat16() == weight)[tried].float().mean().item()


# %% wrong lost-updates: negative updates never lost
#    says: BF16 weights of 1 that shrink
def lost_updates(weight, update):
    tried = update != 0
    same = (weight + update).to(weight.dtype) == weight
    return (same & (update > 0))[tried].float().mean().item() if tried.any() else 0.0


# %% wrong lost-updates: isclose
#    says: stored in
def lost_updates(weight, update):
    tried = update != 0
    new = (weight + update).to(weight.dtype)
    return torch.isclose(new, weight, rtol=1e-2)[tried].float().mean().item() if tried.any() else 0.0


# %% wrong lost-updates: a list of truths
#    says: one number is asked for
def lost_updates(weight, update):
    return ((weight + update).to(weight.dtype) == weight).tolist()


# %% wrong lost-updates: zero counts, and is divided by all
#    says: two updates of 0
def lost_updates(weight, update):
    same = ((weight + update).to(weight.dtype) == weight) & (update != 0)
    return same.float().mean().nan_to_num(0.0).item()


# %% wrong lost-updates: for rows only
#    says: FP16 weights in two rows
def lost_updates(weight, update):
    pairs = [(w, u) for w, u in zip(weight, update) if u.any()]
    lost = sum(bool(((w + u).to(weight.dtype) == w).all()) for w, u in pairs)
    return lost / len(pairs) if pairs else 0.0


# %% right lost-updates: the sum in double
def lost_updates(weight, update):
    new = (weight.double() + update.double()).to(weight.dtype)
    used = update.abs() > 0
    if used.sum() == 0:
        return 0.0
    return float((new.eq(weight) & used).sum() / used.sum())


# %% wrong lost-updates: the update cast first
#    idea: rounding-twice-is-rounding-once
def lost_updates(weight, update):
    sent = update != 0
    if not sent.any():
        return 0.0
    return (weight + update.to(weight.dtype) == weight)[sent].float().mean().item()


# %% wrong lost-updates: isclose, with its own tolerance
#    says: 1 + 9.54e-07 stored in float32 is 1.00000095
def lost_updates(weight, update):
    tried = update != 0
    new = (weight + update).to(weight.dtype)
    return torch.isclose(new, weight)[tried].float().mean().item() if tried.any() else 0.0


# %% wrong lost-updates: the share that arrives
#    says: 1 of 3 updates other than 0
def lost_updates(weight, update):
    sent = update != 0
    if not sent.any():
        return 0.0
    return ((weight + update).to(weight.dtype) != weight)[sent].float().mean().item()


# %% wrong bf16-step: returns the tensor
#    says: `loss.item()`
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


# %% wrong bf16-step: the loss cast in the block
#    says: or cast to them
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels).bfloat16()
    loss.backward()
    optimizer.step()
    return loss.item()


# %% wrong bf16-step: only the step in the block too
#    says: The optimizer's step ran inside the autocast block
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        optimizer.step()
    return loss.item()


# %% wrong bf16-step: the block names no dtype
#    says: float16 on a GPU
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    with torch.autocast(images.device.type):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


# %% right bf16-step: the loss as a tensor without a graph
def bf16_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


# %% right witness: a hook that removes itself
def witness(layer, optimizer, step):
    outputs = []

    def look(layer, inputs, output):
        outputs.append(output)
        handle.remove()

    handle = layer.register_forward_hook(look)
    loss = step()
    found = dict(
        parameter=layer.weight,
        gradient=layer.weight.grad,
        activation=outputs[0],
        loss=loss,
        state=optimizer.state[layer.weight]["exp_avg"],
    )
    return {role: tensor.dtype for role, tensor in found.items()}


# %% wrong witness: state of the optimizer's first parameter
#    says: you report state float16
def witness(layer, optimizer, step):
    seen = {}

    def look(layer, inputs, output):
        seen["activation"] = output.dtype

    handle = layer.register_forward_hook(look)
    loss = step()
    handle.remove()
    seen["parameter"] = layer.weight.dtype
    seen["gradient"] = layer.weight.grad.dtype
    seen["loss"] = loss.dtype
    seen["state"] = optimizer.state_dict()["state"][0]["exp_avg"].dtype
    return seen


# %% wrong witness: the layer called again by hand
#    says: what the layer computes inside
def witness(layer, optimizer, step):
    loss = step()
    out = layer(torch.zeros(1, layer.weight.shape[1], dtype=layer.weight.dtype))
    return {
        "parameter": layer.weight.dtype,
        "gradient": layer.weight.grad.dtype,
        "activation": out.dtype,
        "loss": loss.dtype,
        "state": optimizer.state[layer.weight]["exp_avg"].dtype,
    }


# %% wrong witness: setdefault returns the dtype from the hook
#    idea: what-a-hook-returns-is-ignored
def witness(layer, optimizer, step):
    seen = {}
    h = layer.register_forward_hook(lambda l, i, o: seen.setdefault("activation", o.dtype))
    loss = step()
    h.remove()
    seen["parameter"] = layer.weight.dtype
    seen["gradient"] = layer.weight.grad.dtype
    seen["loss"] = loss.dtype
    seen["state"] = optimizer.state[layer.weight]["exp_avg"].dtype
    return seen


# %% right first-nonfinite: the last one to be written, from the end
def first_nonfinite(named_tensors):
    answer = None
    for name, t in reversed(list(named_tensors)):
        if t.isfinite().sum() != t.numel():
            answer = name
    return answer


# %% wrong first-nonfinite: by index
#    says: has no len()
def first_nonfinite(named_tensors):
    for i in range(len(named_tensors)):
        if not torch.isfinite(named_tensors[i][1]).all():
            return named_tensors[i][0]
