"""Checks of the code questions about automatic mixed precision that no lab asks."""

import torch
from torch import nn
from torch.nn import functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import seeded
from labkit.labs.engine.reading import failure

LAB = "interview"

RAISED = "{case}: {error}."
NO_LOSS = "penalized_loss must return the loss, a tensor that still has its graph."
OTHER_LOSS = "{case}: your loss is {got}; float32 gives {want}."
OTHER_GRADIENT = "{case}: the loss is right, and its gradient is {off:.0%} off float32's."


# A gradient penalty


def _network():
    network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    with torch.no_grad():
        for seed, parameter in enumerate(network.parameters()):
            parameter.copy_(0.4 * seeded(seed, *parameter.shape))
    return network


_X, _TARGETS = seeded(10, 16, 6), torch.arange(16) % 4


def _tiny(output, targets):
    return 1e-7 * F.cross_entropy(output, targets)


_CASES = {  # loss, weight of the penalty, scale
    "cross entropy, scale 1024": (F.cross_entropy, 0.5, 2.0**10),
    "cross entropy, scale 64": (F.cross_entropy, 2.0, 2.0**6),
    "a loss of 1e-7, scale 2**20": (_tiny, 5e6, 2.0**20),
}


def run_penalized_loss(penalized_loss):
    """The loss of `penalized_loss` and its gradients, in FP16 on an emulated GPU."""
    with emulate_gpu():
        return {
            name: attempt(_one, penalized_loss, loss_fn, weight, scale)
            for name, (loss_fn, weight, scale) in _CASES.items()
        }


def _one(penalized_loss, loss_fn, weight, scale):
    network = _network()
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    loss = penalized_loss(network, loss_fn, _X, _TARGETS, scaler, weight, "cpu")
    if not isinstance(loss, torch.Tensor):
        return None, None
    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    scaler.scale(loss).backward()
    scaler.unscale_(sgd)
    flat = torch.cat([p.grad.flatten() for p in network.parameters()])
    return loss.item(), flat


@check(run_penalized_loss)
def check_penalized_loss(shown):
    """A gradient penalty under FP16 AMP that agrees with float32."""
    for name, (loss_fn, weight, _) in _CASES.items():
        got = shown[name]
        if type(got) is Raised:
            raise AnswerError(RAISED, case=name, error=failure(got))
        loss, gradient = got
        if loss is None:
            raise Mistake(NO_LOSS)
        right, wanted = _float32(loss_fn, weight)
        if not abs(loss - right) < 0.02 * right:
            raise Mistake(OTHER_LOSS, case=name, got=loss, want=right)
        off = (gradient - wanted).norm() / wanted.norm()
        if not off < 0.05:
            raise Mistake(OTHER_GRADIENT, case=name, off=off.item())


def _float32(loss_fn, weight):
    """Loss and gradient with no autocast and no scale."""
    network = _network()
    loss = loss_fn(network(_X), _TARGETS)
    gradients = torch.autograd.grad(loss, list(network.parameters()), create_graph=True)
    loss = loss + weight * sum(g.pow(2).sum() for g in gradients)
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in network.parameters()])


def penalized_loss(
    model, loss_fn, inputs, targets, scaler, weight, device, *, scaled=True, unscaled=True,
    graph=True,
):  # fmt: skip
    """labkit's own answer; with a mistake on request."""
    with torch.autocast(device, dtype=torch.float16):
        loss = loss_fn(model(inputs), targets)
    parameters = list(model.parameters())
    # `scale` also makes the scaler's scale, which get_scale reads.
    first = scaler.scale(loss) if scaled else loss
    gradients = torch.autograd.grad(first, parameters, create_graph=graph, retain_graph=True)
    if scaled and unscaled:
        gradients = [g / scaler.get_scale() for g in gradients]
    with torch.autocast(device, dtype=torch.float16):
        return loss + weight * sum(g.pow(2).sum() for g in gradients)


def _known(misconception, question, **faults):
    check_penalized_loss.wrong(misconception, question)(
        lambda *args: penalized_loss(*args, **faults)
    )


_known(
    "penalty-on-scaled-gradients",
    "The penalty grew by the scale, squared. Who divides what autograd.grad returns?",
    unscaled=False,
)
_known(
    "penalty-needs-no-scale",
    "The first backward pass ran without a scale, and small gradients became 0. "
    "What must be scaled before autograd.grad?",
    scaled=False,
)
_known(
    "penalty-without-create-graph",
    "The penalty is in the loss and pulls at nothing. Which argument keeps a gradient's graph?",
    graph=False,
)
