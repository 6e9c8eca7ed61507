"""Check of lab 05's step of a GAN: two networks, two optimizers, one scaler."""

import torch
from torch import nn
from torch.nn import functional as F

from labkit.emulation import emulate_gpu
from labkit.labs.automatic_mixed_precision import solutions
from labkit.labs.automatic_mixed_precision.checks.shared import outside
from labkit.labs.engine import Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.loop_ends import Loop, brief, filled, first_other, flat, same_end, seeded
from labkit.labs.engine.messages import fill

LAB = "05_automatic_mixed_precision"

GAN_RAISED = "Step {i} raised: {error}."
TWO_LOSSES = "Two losses are wanted, that of D and that of G."
IN_YOUR_STEPS = "In your steps {said}"
STOOD_STILL = (
    "In step {i} {name}'s weights did not move. In a right run {name}'s gradients are finite "
    "there, so its optimizer steps."
)
HAD_AN_INF = (
    "In step {i} of a right run {name}'s gradients hold an inf, so its optimizer is skipped. Your "
    "step moved {name}'s weights by {moved:.2g}."
)
HOLDS_SCALE = (
    "In step {i} {name} moved {times:.0f} times as far as it should; the scale was {scale:g}. Does "
    "a gradient still hold the scale when its optimizer steps?"
)
TOO_FAR = "In step {i} {name} moved {times:.2g} times as far as it should."
AGAINST = (
    "In step {i} {name}'s weights moved in the opposite direction. Which labels does the loss of "
    "{name} compare with?"
)
OFF_ITS_WAY = "In step {i} {name}'s movement differs by {away:.0%} from the right one.{why}"
OLD_D = (
    " G was trained against D's weights from before D's step. Does D step first, and does G's loss "
    "have an autocast block of its own?"
)
GAN_SCALE = "After step {i} the scale is {got:g}; {want:g} is wanted."
GAN_LOSS = "In step {i} the loss of {name} is {got}; {want} is wanted.{why}"
THE_OTHER = " That is the loss of {name}."
THE_SCALE = " That is {scale:g} times as much, which is the scale."
LOSS_IN_16_BITS = (
    "Each of your losses of {name}, such as {loss}, is a value of FP16, so they were computed in "
    "16 bits. Under autocast binary_cross_entropy_with_logits runs in float32. Where does the "
    "autocast block end?"
)
ENDS_DIFFER = "Your steps do not end where the right ones end."

_GAN_SCALE = 2.0**12


def run_gan_step(gan_step, seed):
    """Seven steps of a tiny pair: the third overflows in D alone, the fifth in G.

    The first weights, the real data and the noise come of the seed.
    """
    drawn = 100 * seed
    generator = nn.Sequential(nn.Linear(3, 12), nn.SiLU(), nn.Linear(12, 6))
    generator = filled(generator, 3 + drawn)
    discriminator = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 1))
    discriminator = filled(discriminator, 4 + drawn)
    d_optimizer = torch.optim.SGD(discriminator.parameters(), lr=0.2)
    g_optimizer = torch.optim.SGD(generator.parameters(), lr=0.2)
    scaler = torch.amp.GradScaler("cpu", init_scale=_GAN_SCALE, growth_interval=4)
    met = {"D": set(), "G": set()}
    for name, network in (("D", discriminator), ("G", generator)):
        network.register_forward_hook(
            lambda module, inputs, output, name=name: met[name].add(str(output.dtype))
        )
    shown = {"losses": [], "scales": [], "D": [], "G": []}
    with emulate_gpu():
        for i in range(7):
            real = seeded(drawn + 90 + i, 16, 6) + 1
            real = -2000 * real if i == 2 else real
            noise = seeded(drawn + 200 + i, 16, 3)
            noise = 500 * noise if i == 4 else noise
            # So large a bias makes D call all fake: at an overflow of either one, whatever it saw.
            sure = 8192.0 if i in (2, 4) else 0.0
            discriminator[2].bias.data -= sure
            was = flat(discriminator), flat(generator)
            pair = generator, discriminator
            optimizers = d_optimizer, g_optimizer
            losses = attempt(gan_step, *pair, real, noise, *optimizers, scaler, "cpu")
            shown["losses"].append(losses)
            shown["scales"].append(scaler.get_scale())
            shown["D"].append(flat(discriminator) - was[0])
            shown["G"].append(flat(generator) - was[1])
            discriminator[2].bias.data += sure
    shown["met"] = {name: sorted(dtypes) for name, dtypes in met.items()}
    return shown


def _gan_evidence(got, want, seed):
    for i in range(len(want["scales"])):
        losses = got["losses"][i]
        if type(losses) is Raised:
            return fill(GAN_RAISED, i=i, error=brief(losses))
        if not isinstance(losses, (list, tuple)) or len(losses) != 2:
            return TWO_LOSSES
        for name in ("D", "G"):
            if got["met"][name] != want["met"][name]:
                return fill(IN_YOUR_STEPS, said=outside(name, got["met"][name]))
        for name in ("D", "G"):
            moved, wanted = got[name][i], want[name][i]
            if same_end(moved, wanted):
                continue
            if not moved.any():
                return fill(STOOD_STILL, i=i, name=name)
            if not wanted.any():
                return fill(HAD_AN_INF, i=i, name=name, moved=moved.norm())
            times = (moved @ wanted / (wanted @ wanted)).item()
            away = (moved - wanted).norm() / wanted.norm()
            if away > 50:
                times = moved.norm() / wanted.norm()
                scale = _scale_before(want, i)
                return fill(HOLDS_SCALE, i=i, name=name, times=times, scale=scale)
            if (moved - times * wanted).norm() < 0.02 * moved.norm():
                return fill(TOO_FAR, i=i, name=name, times=times)
            if moved @ wanted < -0.5 * moved.norm() * wanted.norm():
                return fill(AGAINST, i=i, name=name)
            old = GAN.end(_against_old_d, seed=seed)
            why = OLD_D if name == "G" and same_end(moved, old["G"][i]) else ""
            return fill(OFF_ITS_WAY, i=i, name=name, away=away, why=why)
        if got["scales"][i] != want["scales"][i]:
            return fill(GAN_SCALE, i=i, got=got["scales"][i], want=want["scales"][i])
        other = first_other(losses, want["losses"][i])
        if other:
            place, a, b = other
            why = _why_loss(a, place, want, i)
            return fill(GAN_LOSS, i=i, name="DG"[place], got=brief(a), want=brief(b), why=why)
    return ENDS_DIFFER


def _against_old_d(*arguments):
    # The block's cache keeps 16-bit copies of the weights that D had before its step.
    with torch.autocast("cpu", dtype=torch.float16):
        return solutions.gan_step(*arguments)


def _why_loss(got, place, want, i):
    """What a loss is that is not the one wanted."""
    scale = _scale_before(want, i)
    if same_end(got, want["losses"][i][1 - place]):
        return fill(THE_OTHER, name="GD"[place])
    return fill(THE_SCALE, scale=scale) if same_end(got, want["losses"][i][place] * scale) else ""


def _scale_before(want, i):
    return want["scales"][i - 1] if i else _GAN_SCALE


GAN = Loop(
    run_gan_step,
    solutions.gan_step,
    _gan_evidence,
    lambda shown: [shown["D"], shown["G"], shown["scales"]],
)


@check(run_gan_step, seeds=2)
def check_gan_step(got, seed):
    """Two optimizers under one scale: an inf in D costs D its step, and G nothing."""
    GAN.judge(got, check_gan_step.known_wrong, seed=seed)
    for place, name in enumerate("DG"):
        # Seven losses of float32 are all values of FP16 once in 2**91.
        losses = torch.tensor([float(pair[place]) for pair in got["losses"]])
        if torch.equal(losses.half().float(), losses):
            raise Mistake(LOSS_IN_16_BITS, name=name, loss=losses[0].item())


_STOP_AT_INF_IN_D = """\
    if not all(p.grad.isfinite().all() for p in discriminator.parameters()):
        scaler.update()
        return d_loss.item(), float("nan")"""
_D_STEPS = """\
    scaler.scale(d_loss).backward()
    scaler.step(d_optimizer)
"""
_G_LOSS = """\
    with torch.autocast(device, dtype=torch.float16):
        on_fake = discriminator(fake)
        g_loss = bce(on_fake, torch.ones_like(on_fake))
    g_optimizer.zero_grad()
"""
_G_STEPS = f"{_G_LOSS}    scaler.scale(g_loss).backward()\n"
_BOTH_STEP = (
    f"{_G_LOSS}    scaler.scale(d_loss + g_loss).backward()\n    scaler.step(d_optimizer)\n"
)

check_gan_step.slip(
    "one-update-per-optimizer",
    "Both optimizers share one scale. After which optimizer's step may `update` change it?",
    swap=("scaler.step(d_optimizer)", "scaler.step(d_optimizer)\n    scaler.update()"),
)
check_gan_step.slip(
    "one-inf-stops-both",
    "The scaler checks each optimizer separately. Which one may step although the other one is "
    "skipped?",
    swap=("scaler.step(d_optimizer)", f"scaler.step(d_optimizer)\n{_STOP_AT_INF_IN_D}"),
)
_CUT = "D's loss must send no gradients through the fakes to G. Which call cuts that path?"
check_gan_step.slip(
    "detach-is-optional", _CUT, swap=("discriminator(fake.detach())", "discriminator(fake)")
)


@check_gan_step.wrong("detach-is-optional", _CUT)
def _(generator, discriminator, real, noise, d_optimizer, g_optimizer, scaler, device):
    """With the `retain_graph=True` that torch's error proposes."""
    bce = F.binary_cross_entropy_with_logits
    d_optimizer.zero_grad()
    g_optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        fake = generator(noise)
        on_real, on_fake = discriminator(real), discriminator(fake)
        d_loss = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
    scaler.scale(d_loss).backward(retain_graph=True)
    scaler.step(d_optimizer)
    with torch.autocast(device, dtype=torch.float16):
        on_fake = discriminator(fake)
        g_loss = bce(on_fake, torch.ones_like(on_fake))
    scaler.scale(g_loss).backward()
    scaler.step(g_optimizer)
    scaler.update()
    return d_loss.item(), g_loss.item()


check_gan_step.slip(
    "g-backward-leaves-d-alone",
    "G's loss runs through D, so its backward pass fills D's gradients too. When must D's "
    "gradients be emptied?",
    swap=(f"    d_optimizer.zero_grad()\n{_D_STEPS}", f"{_D_STEPS}    d_optimizer.zero_grad()\n"),
)
check_gan_step.slip(
    "g-backward-leaves-d-alone",
    "G's loss runs through D, so its backward pass fills D's gradients too. When must D's "
    "gradients be emptied?",
    cut="d_optimizer.zero_grad()",
)
check_gan_step.slip(
    "gradients-reset-themselves",
    "G's gradients overflowed in an earlier step, and the inf is still in .grad. Which call "
    "empties G's gradients?",
    cut="g_optimizer.zero_grad()",
)
check_gan_step.slip(
    "one-backward-for-both",
    "D stepped with the gradients of both losses, and G's loss is small where D is wrong. Of which "
    "loss must D use the gradients?",
    swap=(f"{_D_STEPS}{_G_STEPS}", _BOTH_STEP),
)
check_gan_step.slip(
    "bce-is-safe-under-autocast",
    "In 16 bits the sigmoid of a moderate logit already rounds to 1. Which loss takes the logits "
    "themselves?",
    swap=(
        "F.binary_cross_entropy_with_logits",
        "lambda logits, targets: F.binary_cross_entropy(logits.sigmoid(), targets)",
    ),
)
