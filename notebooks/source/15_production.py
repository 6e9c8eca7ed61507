# %% [markdown]
# # 15. Go / no-go: a production readiness review
#
# You take one change of precision from a claim to all of the traffic: you test it with sound statistics, make its training survive faults, and let a rule roll it back.
#
# *any laptop · needs: labs 04, 05 and 06; labs 07, 11 and 12 help*
#
# After this lab you can:
#
# - decide from paired runs whether a change of precision may ship, and watch a rollout all the time without more false alarms;
# - write checkpoints from which a killed run goes on bit for bit, and compare a served model with the trained one.
#
# ## Sitting A: evidence
#
# *You are here:* **a published test** → two controls → pairs → crashed runs → ship → many looks → a gate → *stop*

# %%
import math, numpy as np, torch
from statistics import fmean, stdev, variance
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.production import checks, figures, predictions as guesses, recorded
from labkit.labs.production import solutions as ours

# %% [markdown]
# First, a few questions from earlier labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("15_production")

# %% [markdown]
# ### The published A/B test
#
# A team wants to train in BF16 instead of FP32, and asks whether the model gets worse. A published Python class answers with an **A/B test**, a comparison of two variants, its *arms*. The class trains *one* model, the first half of the steps in arm A (FP32) and the second half in arm B (BF16), and compares the losses of the two halves by a t-test.
#
# Test the test first. In an **A/A test** both arms are the same, here FP32 and FP32. A sound test at the 5 % level then finds a difference in about one experiment of 20. `halves` trains a digit reader in FP32 and returns t, the difference of the halves' mean losses divided by its standard error. A t above 2 or below −2 counts as a difference.

# %%
from labkit.training import train
from labkit.training.data import batches, digits
from labkit.training.models import mlp

data = digits()


def halves(seed):
    """t of the losses of the first half of a run against those of the second half."""
    torch.manual_seed(seed)
    reader = mlp(64, 32, 10)
    sgd = torch.optim.SGD(reader.parameters(), lr=0.1, momentum=0.9)
    loader = batches(data.train_images, data.train_labels, 32, seed=seed)
    losses = [r.loss for r in train(reader, loader, optimizer=sgd, epochs=2, progress=False)]
    a, b = losses[: len(losses) // 2], losses[len(losses) // 2 :]
    return (fmean(a) - fmean(b)) / math.sqrt(variance(a) / len(a) + variance(b) / len(b))


# %% predict="aa-phases"
@predict(guesses.aa_phases)
def found_different():
    return str(sum(abs(halves(seed)) > 2 for seed in range(20)))


# %% [markdown]
# All 20. The losses of the second half are lower in every run, because the model has learnt meanwhile. Both arms are FP32, so the test found the progress of the training, not an effect of precision. With BF16 in the second half, progress and precision would change together, and the test could not separate their effects.

# %% [markdown]
# ### Two controls for a test
#
# Another design trains one model and changes the arm at every step. But both arms then train the same weights, so each loss shows the updates of both arms. A test therefore needs two **controls**: with equal arms (A/A) it may find a difference in no more than about 5 % of the experiments, and with arm B broken on purpose it must find the difference. The table shows how often five designs found a difference in recorded experiments. In the broken arm each gradient is a tenth of what it should be. In the last row the second FP32 arm adds up each layer's inputs in reverse order, because equal runs with one seed would not differ at all.

# %%
recorded.designs_table()

# %% [markdown]
# The alternating design finds no difference in either column: it passes A/A only because it cannot find any. The test on the step losses of two runs calls 41 of 250 identical arms different, three times the announced 5 %: all losses of a run depend on the seed of this run, so they are not independent samples. Only the last two designs pass both controls. They take *one* final loss from each run, and several runs.
#
# ### What pairs two runs
#
# Final scores differ from seed to seed, often by more than a precision changes them. Pairs remove this spread (lab 06), because only the difference of two runs with one seed counts. What must the two runs of a pair share: the initial weights, the order of the batches, or both? The figure shows recorded differences in test loss, from pairs that share both, one, or nothing.

# %%
figures.pairing_picture(recorded.pairing())

# %% [markdown]
# Runs that share only the initial weights differ as much as unrelated runs. Sharing the order of the batches helps more. If both are shared, five pairs show what would take 205 pairs of unrelated runs. So seed torch anew before *each* run, and make a *new* model and a *new* loader for it.

# %% [markdown]
# ### Exercise: a paired experiment
#
# *14 minutes, optional, about 8 lines.* Write `experiment`, which runs each arm with each seed, so that two equal arms give equal scores.
#
# Write it yourself: labkit's `experiments.paired` does not count.
#
# - **Input:** lists of arms and of seeds. `make()` draws the weights of a new model from torch's random numbers. `batches(seed)` gives a loader whose data follow from the seed; a second pass over it gives other batches. `fit(model, loader, arm)` trains the model in place, with dropout, in the precision of the arm. `score(model)` returns a number.
# - **Output:** one run for each arm and seed, as {arm: {seed: score}}. If the loss of a run becomes NaN, the run has *crashed*: `fit` still returns, and `score` gives NaN. This score stays in the table.
# - **Pairs:** runs with the same seed start from the same weights, get the same batches, and begin `fit` with the same state of torch's random numbers. Different seeds give different weights and batches. A score depends on its seed and its arm only, not on the other arms or their order.
# - **Example:** the arms `["fp32", "fp32 again"]` get equal scores, bit for bit.


# %% exercise="experiment"
def experiment(arms, seeds, make, batches, fit, score):
    """{arm: {seed: score}}; two arms that do the same have the same scores, bit for bit."""
    ### BEGIN SOLUTION
    results = {arm: {} for arm in arms}
    for seed in seeds:
        for arm in arms:
            torch.manual_seed(seed)
            model = make()
            fit(model, batches(seed), arm)
            results[arm][seed] = score(model)
    return results
    ### END SOLUTION


# %% check="experiment" points=0
checks.check_experiment(experiment)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Print the first weight and the first batch of both runs of a pair. Which of them differ? What is drawn at random after the weights?
# </details>
# <details><summary>Hint 2</summary>
#
# `torch.manual_seed` sets torch's random numbers. `make` and dropout both draw from them. Who has drawn how many when the second arm starts?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# results = {arm: {} for arm in arms}
# for seed in seeds:
#     for arm in arms:
#         ...  # the state of torch's random numbers
#         model = make()
#         fit(model, ..., arm)
#         results[arm][seed] = score(model)
# ```
# </details>

# %% [markdown]
# The cell runs FP32 twice, FP32 with the hidden units in reverse order, and BF16. On paper the reverse order changes no result, but the second layer then adds the same terms in another order. The score is minus the test loss. Each row shows the score of one arm minus the score of FP32, one number for each seed.


# %% tags=["nbval-ignore-output"]
def reader():
    return mlp(64, 32, 10)


def loader_of(seed):
    return batches(data.train_images, data.train_labels, 32, seed=seed)


def fit(model, loader, arm):
    if arm == "units reversed":
        first, second = (layer for layer in model if isinstance(layer, torch.nn.Linear))
        for parameter in (first.weight, first.bias):
            parameter.data = parameter.data.flip(0)
        second.weight.data = second.weight.data.flip(1)
    rate = 0.01 if arm == "a tenth" else 0.1
    sgd = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    precision = "bf16" if arm == "bf16" else "fp32"
    train(model, loader, optimizer=sgd, precision=precision, epochs=2, progress=False)


def minus_loss(model):
    logits = model(data.test_images)
    return -torch.nn.functional.cross_entropy(logits, data.test_labels).item()


# %% tags=["nbval-ignore-output"]
runs = yours(experiment, ours.experiment)
arms = ["fp32", "fp32 again", "units reversed", "bf16"]
found = runs(arms, range(5), reader, loader_of, fit, minus_loss)
for arm in arms[1:]:
    differences = [found[arm][seed] - found["fp32"][seed] for seed in range(5)]
    print(f"{arm:15}", *(f"{d:+.1e}" for d in differences))
claim("FP32 minus FP32 is 0 in each pair", found["fp32"] == found["fp32 again"])

# %% [markdown]
# A difference of exactly 0 shows that the pairs share all that is drawn at random. This 0 is not the noise of the comparison. The noise stands in the second row, where only the order of the additions changes.
#
# `paired` runs both controls with each experiment, here with a broken arm that has a tenth of the learning rate. It decides against a **margin**, the largest drop of the score that you accept. It also says how many pairs it takes until an equally good candidate ships with a chance of 90 %.

# %% tags=["nbval-ignore-output"]
from labkit.labs.production.experiments import paired

trial = paired(["fp32", "bf16"], range(5), reader, loader_of, fit, minus_loss, broken="a tenth")
decision = trial.decide(margin=0.01)
print(trial.controls())
print(decision, f"\npairs needed: {decision.pairs_needed}")

# %% [markdown]
# BF16 is slightly worse here and ships all the same, because the whole interval lies above −margin.
#
# ### Runs that crash
#
# Some runs leave no score, because their loss became NaN. The cell prints the test accuracies, in %, of recorded runs: each row is an arm, each column a seed. The third arm trains in FP16 with a fixed loss scale of 200,000 and skips no step, so a gradient that overflows reaches the weights. The fourth, *pure BF16*, keeps its weights in BF16 too.

# %%
scores = recorded.training_scores()
for arm, by_seed in scores.items():
    print(f"{arm:20}", *(f"{100 * score:5.1f}" for score in by_seed.values()))
fixed, fp32 = scores["fp16, scale 200,000"], scores["fp32"]
gaps = [fixed[seed] - fp32[seed] for seed in fp32 if math.isfinite(fixed[seed])]
print(f"the {len(gaps)} survivors: {100 * fmean(gaps):+.2f} points in the mean")

# %% [markdown]
# Six of the 12 runs crash, and the other six score exactly as FP32 does. If you delete the pairs of the crashed runs as missing data, you ship this arm. But a crash *is* the result of a run, so a candidate with a crashed run is rejected. If a *reference* run crashed, the comparison itself is broken and decides nothing.
#
# ### Exercise: ship, reject or hold
#
# "No significant difference" proves nothing: with three noisy runs hardly any difference is significant. Name a **margin** first, the largest drop of the score that you accept, and demand evidence that the candidate is not worse by more than the margin: a **non-inferiority** test. Unlike lab 06's *equivalent*, it lets a better candidate ship.
#
# *14 minutes, about 9 lines.* Write `ship`, which decides about a candidate from paired scores. Write it yourself: labkit's `measuring.verdict` does not count.
#
# 1. For each seed, take the difference candidate minus reference. The 95 % interval of the mean difference is mean ± t·s/√n, with the sample standard deviation s of the n differences, as in lab 06.
# 2. If the whole interval lies above −margin: `"ship"`. If the whole interval lies below −margin: `"reject"`. Otherwise: `"hold"`.
#
# - **Input:** two dicts {seed: score}; their seeds may stand in different orders, and scores may be negative. A margin above 0, which is a drop of the score itself and not a share of it, and t for this number of pairs. No end of an interval lies exactly on −margin.
# - **Crashed runs:** their score is NaN. If a run of the reference crashed: `"hold"`, whatever the candidate did. Otherwise, if a run of the candidate crashed: `"reject"`. A pair with a crashed run counts as a pair.
# - **Error:** a `ValueError` for fewer than two pairs, and for a seed that only one arm has, whatever the scores are.
# - **Example:** differences of −0.002, −0.004, −0.003 and −0.003, t = 3.182: the interval is −0.003 ± 0.0013. With a margin of 0.01 it lies above −0.01: `"ship"`.
# - **Edge case:** all differences may be equal. Then s = 0, the interval is a single point, and the same rule decides: a difference of 0 in all pairs gives `"ship"`, and one of −0.125 gives `"reject"` if the margin is 0.01.


# %% exercise="ship"
def ship(reference, candidate, margin, t):
    """ "ship", "reject" or "hold"; both are {seed: score}, and a higher score is better."""
    ### BEGIN SOLUTION
    if len(reference) < 2 or reference.keys() != candidate.keys():
        raise ValueError("pass two or more pairs, with the same seeds in both arms")
    if not all(map(math.isfinite, reference.values())):
        return "hold"
    if not all(map(math.isfinite, candidate.values())):
        return "reject"
    gains = [candidate[seed] - reference[seed] for seed in reference]
    half = t * stdev(gains) / math.sqrt(len(gains))
    if fmean(gains) - half > -margin:
        return "ship"
    return "reject" if fmean(gains) + half < -margin else "hold"
    ### END SOLUTION


# %% check="ship" points=3
checks.check_ship(ship)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A mean of −0.004 is above −0.01. How far must the differences scatter until you would hold?
# </details>
# <details><summary>Hint 2</summary>
#
# By what do you find the two runs of a pair? In which order must your lines ask for missing seeds, crashed runs and the interval, if NaN makes every comparison False?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# gains = [candidate[seed] - reference[seed] for seed in reference]
# half = t * stdev(gains) / ...
# if fmean(gains) - half > -margin:
#     return "ship"
# return "reject" if ... else "hold"
# ```
# </details>

# %% [markdown]
# The cell judges the three candidates against a margin of 1 percentage point, by the first three pairs (t = 4.303) and by all 12 (t = 2.201).

# %%
decide = yours(ship, ours.ship)
for arm in list(scores)[1:]:
    print(f"{arm:20}", end="")
    for pairs, t in ((3, 4.303), (12, 2.201)):
        both = [dict(list(scores[name].items())[:pairs]) for name in ("fp32", arm)]
        print(f"{pairs:4} pairs: {decide(*both, margin=0.01, t=t):8}", end="")
    print()

# %% [markdown]
# Pure BF16 is worse by 1.7 to 3.6 points in each of the first three pairs, and yet three pairs are too few to reject it: their interval still contains −1 point. Estimate how many pairs you need from the spread of earlier pairs, and fix this number before the runs.
#
# ### Looking at a test again and again
#
# Training runs end. A *rollout*, in which users are moved step by step from the old model (the reference) to a new one (the candidate), is watched all the time. Let each request go to both models (a **mirrored** request), and score both answers. Only *disagreements* count: requests on which exactly one model is right. If the models are equally good, each disagreement is the toss of a fair coin.
#
# Let w of n disagreements be against the candidate. A test alarms if z = (w − n/2) / √(n/4) is above 1.645. If the test looks once, it accuses 5 % of the candidates that are as good as the reference. The cell simulates 20,000 such candidates, and the test looks after every 400 disagreements.


# %%
def ever_alarms(looks, streams=20_000):
    """The share of equal candidates that z > 1.645 accuses at one of the looks."""
    draw = np.random.default_rng(0)
    w = draw.binomial(400, 0.5, (streams, looks)).cumsum(axis=1)
    n = 400 * np.arange(1, looks + 1)
    return ((w - n / 2) / np.sqrt(n / 4) > 1.645).any(axis=1).mean()


print(f"one look: {ever_alarms(1):.0%}")


# %% predict="twenty-looks"
@predict(guesses.twenty_looks)
def with_twenty():
    choices = ("about 5 %", "about 20 %", "about 65 %")
    return min(choices, key=lambda c: abs(float(c.split()[1]) / 100 - ever_alarms(20)))


# %% [markdown]
# About 20 %. Each look is another chance to cross the line. Neighbouring looks share most of their data, so the share stays below the 64 % of 20 independent tests. With a look after each single disagreement the share is larger still, as the next figure shows.

# %% [markdown]
# The figure shows z of 40 equal candidates, and three boundaries. The rule alarms where z crosses its boundary. A constant boundary for 2,000 looks must lie higher than 1.645, and you must know the number of looks in advance. The third boundary, E, needs no number of looks.

# %%
figures.peeking_picture()

# %% [markdown]
# The third boundary comes from an **e-value**, E. Let w of n disagreements be against the candidate, and b = n − w for the candidate. A fair coin gives the sequence of these disagreements the probability 2⁻ⁿ. A coin that lands against the candidate with probability p gives the same sequence the probability pʷ(1 − p)ᵇ. E is the mean of the second probability over all p from 0 to 1, divided by the first. A large E speaks against the fair coin:
#
# $$E = 2^n \int_0^1 p^w (1-p)^b\,dp = \frac{2^n\; w!\; b!}{(n+1)!}$$
#
# Choose the share α of false alarms that you accept. If the models are equally good, the chance that E *ever* reaches 1/α is at most α (Ville's inequality). For α = 0.05 the limit 1/α is 20. E also grows when the candidate is *better*, so alarm only if E ≥ 1/α and w > b.

# %% [markdown]
# ### Exercise: a gate that may always be asked
#
# *13 minutes, about 6 lines.* Write `see`, which counts one mirrored request and says whether to roll back now. Write it yourself: labkit's `gates.Gate` and `gates.log_e` do not count.
#
# - **Input:** two booleans: True if the reference answered this request rightly, and True if the candidate did. alpha is between 0 and 1. Each gate counts w and b from 0. The check calls only `Gate(alpha)` and `see`, so your attributes may have any names.
# - **Output:** True if E ≥ 1/alpha and w > b, otherwise False. E is never exactly 1/alpha, and after True the gate gets no more requests.
# - **What does not count:** requests that both models answer rightly, or both wrongly.
# - **Range:** from n = 1,024 on, 2ⁿ overflows a float, even where E is small. After 1,100 requests on which only the candidate is right, E itself is beyond a float, and later requests can make it small again. Compute the logarithm of E, for example: `math.lgamma(k + 1)` is the logarithm of k!.
# - **Example:** alpha is 0.05, and only the reference is right on each request. E is 16 after seven of them and 28.4 after eight, so the eighth call returns True.


# %% exercise="gate"
class Gate:
    """A test of mirrored requests that may be looked at after each of them."""

    def __init__(self, alpha=0.05):
        self.alpha, self.worse, self.better = alpha, 0, 0

    def see(self, reference_right, candidate_right):
        """True: roll back now."""
        ### BEGIN SOLUTION
        self.worse += bool(reference_right and not candidate_right)
        self.better += bool(candidate_right and not reference_right)
        n = self.worse + self.better
        log_e = n * math.log(2) + math.lgamma(self.worse + 1) + math.lgamma(self.better + 1)
        log_e -= math.lgamma(n + 2)
        return self.worse > self.better and log_e >= -math.log(self.alpha)
        ### END SOLUTION


# %% check="gate" points=3
checks.check_gate(Gate)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which of the four combinations of right and wrong says anything about which model is better?
# </details>
# <details><summary>Hint 2</summary>
#
# What is the logarithm of 2ⁿ·w!·b!/(n + 1)!, as a sum of four terms? With which number do you compare it?
# </details>
# <details><summary>Hint 3</summary>
#
# ```python
# n = self.worse + self.better
# log_e = n * math.log(2) + math.lgamma(self.worse + 1) + ... - math.lgamma(...)
# ```
# </details>

# %% [markdown]
# The cell sends 1,000 disagreements to two rules, 200 times each: the z-rule from above, applied after each disagreement from the 20th on, and your gate. The candidate is as good as the reference, or loses 60 % or 75 % of the disagreements. The *wait* is the number of disagreements until the alarm.

# %%
Watch = yours(Gate, ours.Gate)


class AskedAgain(ours.Gate):
    """The test for one look, after each disagreement."""

    def see(self, reference_right, candidate_right):
        self.worse += reference_right
        self.better += candidate_right
        n = self.worse + self.better
        return n >= 20 and (self.worse - n / 2) / math.sqrt(n / 4) > 1.645


def alarms(rule, share, streams=200):
    """After how many disagreements the rule alarms, for each stream in which it does."""
    draw, found = np.random.default_rng(0), []
    for worse in (draw.random((streams, 1000)) < share).tolist():
        gate = rule()
        found += [n for n, w in enumerate(worse, 1) if gate.see(w, not w)][:1]
    return found


# %%
for name, rule in {"z > 1.645": AskedAgain, f"{whose(Watch)} gate": Watch}.items():
    equal, slightly, clearly = (alarms(rule, share) for share in (0.5, 0.6, 0.75))
    print(f"{name:14} accuses {len(equal) / 200:4.0%} of equal candidates, median wait:", end=" ")
    print(f"{np.median(slightly):.0f} at 60 %, {np.median(clearly):.0f} at 75 %")

# %% [markdown]
# The z-rule accuses 35 % of the equal candidates, the gate 1 %. The gate pays with time: where a candidate loses 60 % of the disagreements, the gate's median wait is 191 disagreements, and the z-rule's is 34. The gate's limit of 5 % false alarms holds only if, for equal models, each disagreement is a fair coin toss whatever came before. If one user sends the same request 1,000 times, the tosses repeat each other, and the limit no longer holds. And the gate has no margin: with enough traffic it also stops a candidate that is worse by an amount that you accept.
#
# *This is a good place to stop.*
#
# ## Sitting B: survive and ship
#
# Near its end this sitting uses your `ship` and `Gate`: in a new kernel, run their cells again first.
#
# *You are here:* **what a checkpoint holds** → broken files → checkpoints → flipped bits → faults → serving → rollout

# %%
import hashlib, io, math, os, tempfile, torch
from pathlib import Path
from labkit.labs.engine import claim, predict, whose, yours
from labkit.labs.production import checks, figures, predictions as guesses, recorded
from labkit.labs.production import solutions as ours

# %% [markdown]
# ### What a checkpoint must hold
#
# While Llama 3 405B trained on up to 16,384 GPUs, 419 unexpected interruptions came in 54 days, about one every three hours. A run must go on from its last **checkpoint** as if nothing had happened. The table shows recorded runs in emulated FP16 with dropout. After 30 of 60 steps, each run resumed from a checkpoint that lacked one part; in the row *nothing*, no part was missing. The *whole run* never stopped. *Weights off* is how far the weights end from those of the whole run, as a share of the distance between the first and the last weights of the whole run. *RNG* stands for the state of torch's random number generator, and the *growth counter* is the loss scaler's count of good steps since its last change (lab 04).

# %%
recorded.resumes_table()

# %% [markdown]
# Only the complete checkpoint gives the same run for all five seeds. (Without the growth counter, two of the five runs still end with the same bits.) Without the optimizer's state or the schedule, the test loss is even *lower* than that of the whole run. So a loss cannot tell you whether a resume is right, but bits can: with the same software on the same machine, and deterministic kernels on a GPU, losses, loss scales and weights after a resume must equal those of the whole run.
#
# ### Files that break
#
# A crash *while* a checkpoint is written leaves half a file. So write a new file beside the old one, and rename it when it is complete. `os.replace(new, final)` is **atomic**: for every other process the name stands for the old file or for the whole new one, never for a part. (POSIX promises this; Windows does not.) Before the rename, call `os.fsync`, which writes the bytes to the disk. Otherwise a power cut can leave the final name with an empty file, because a name may reach the disk before the bytes do. A power cut can also undo the rename itself, and then the final name stands for the old file, or for none.
#
# Other damage is silent. The cell flips one bit of a saved tensor.

# %%
weights, buffer = torch.randn(1000, generator=torch.Generator().manual_seed(0)), io.BytesIO()
torch.save(weights, buffer)
damaged = bytearray(buffer.getvalue())
damaged[len(damaged) // 2] ^= 0b01000000
loaded = torch.load(io.BytesIO(damaged), weights_only=True)
print(f"{(loaded != weights).sum()} of 1,000 values changed, and torch.load raised nothing")
digests = [hashlib.sha256(file).hexdigest() for file in (buffer.getvalue(), damaged)]
claim("the SHA-256 digests of the two files differ", digests[0] != digests[1])

# %% [markdown]
# The file holds checksums, but `torch.load` does not compare them. A **digest** such as SHA-256 changes if any bit of the file changes. Keep the digest with the file. Before you load, compute it again and compare the two.

# %% [markdown]
# ### Exercise: checkpoints that survive
#
# *20 minutes, about 15 lines.* Write `save` and `resume` of `Checkpoints`.
#
# - **Input:** `folder`, a path to a folder that exists and may get subfolders; `parts`, a dict of names and objects with `state_dict()` and `load_state_dict(state)`. A part may have any name, also one that your own file uses, such as `step`. The states hold tensors, numbers, booleans, strings, `None`, and dicts, lists and tuples of these.
# - **`save(step)`** writes a checkpoint: the states of all parts, the state of torch's CPU generator, and the step, an int above 0. The run has drawn numbers since it set its seed, so the seed is not the state. `save` changes nothing in the run, neither its parts nor torch's generator. The checkpoints of other steps stay. Saving a step again, also with other values, replaces the checkpoint of this step.
# - **`resume()`** loads the newest checkpoint that is whole, bit for bit, and returns its step, an int. The newest is the one of the largest step; steps reach 100,000 and more. In a new process another object reads the same folder with new parts; a run that rolls back calls `resume` on the object that saved, whose parts then hold later states.
# - **A kill** may end `save` at any byte. Every checkpoint that was whole before stays whole. If a step was being saved again, its old or its new values are right, never a mixture. `resume` finds the newest whole checkpoint, and later saves work.
# - **Damage:** a file may be gone, end too early, or have one flipped bit. `resume` then takes the newest checkpoint that is still whole, and raises nothing. The file may be one that several checkpoints share, so give each checkpoint files of its own.
# - **Nothing whole:** `resume` returns 0, and loads nothing into the parts or the generator.
# - **Example:** after `save(5)`, `save(8)` and a flipped bit in the checkpoint of step 8, `resume()` returns 5, and all is as it was at step 5.
#
# The check sends your class to a second process and lets the operating system kill this process while it writes its largest file. What the class and its globals hold must be picklable, so make a `struct.Struct`, a lock or an open file inside a method. The check cannot cut the power, so it does not see whether you call `os.fsync`, and it does not kill between two files.


# %% exercise="checkpoints"
class Checkpoints:
    """Checkpoints of a run in a folder; each file is whole or passed over."""

    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        """Write the parts, torch's generator and the step, so that a kill costs no checkpoint."""
        # After file.write: file.flush(), then os.fsync(file.fileno()).
        # After the `with` block: os.replace(unfinished, final).
        ### BEGIN SOLUTION
        state = {name: part.state_dict() for name, part in self.parts.items()}
        buffer = io.BytesIO()
        torch.save({"step": step, "random": torch.get_rng_state(), "parts": state}, buffer)
        data, unfinished = buffer.getvalue(), self.folder / "unfinished"
        with open(unfinished, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self.folder / f"{step:012}.pt")
        ### END SOLUTION

    def resume(self):
        """Load the newest checkpoint that is whole, and return its step; 0 if there is none."""
        ### BEGIN SOLUTION
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            digest, data = path.read_bytes()[:32], path.read_bytes()[32:]
            if hashlib.sha256(data).digest() != digest:
                continue
            saved = torch.load(io.BytesIO(data), weights_only=True)
            for name, part in self.parts.items():
                part.load_state_dict(saved["parts"][name])
            torch.set_rng_state(saved["random"])
            return saved["step"]
        return 0
        ### END SOLUTION


# %% check="checkpoints" points=4
checks.check_checkpoints(Checkpoints)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A kill can come between any two bytes. At which moment may the final name begin to stand for the new file? What does `resume` need beside the data to know that all its bits are right, and where do you keep this?
# </details>
# <details><summary>Hint 2</summary>
#
# Solve it first for one tensor and no steps: write `hashlib.sha256(data).digest() + data` to a second name and rename it; read it, split off the first 32 bytes, and compare. Then make `data` from a dict of all states. How must a step stand in a name so that 10 comes after 9?
# </details>
# <details><summary>Hint 3</summary>
#
#     buffer = io.BytesIO()
#     torch.save({"step": step, "random": ..., "parts": ...}, buffer)  # then write, fsync, replace
#
#     for path in sorted(self.folder.glob("*.pt"), reverse=True):
#         ...  # another digest: continue with the next path
#         saved = torch.load(io.BytesIO(data), weights_only=True)
#         ...  # load each part, set the generator, return the step
#     return 0
# </details>

# %% [markdown]
# Large runs use `torch.distributed.checkpoint` (DCP), in which each rank writes its own shards. It compares no digest either.
#
# ### Optional: a run that torchrun starts again
#
# With `--max-restarts`, `torchrun` starts all processes again after one of them died, and the script resumes from its newest whole checkpoint. The table shows recorded runs with DCP. In the first row a process was killed, in the others the run went on with another number of processes. *Same bits* compares the final weights with those of an undisturbed run of two processes.

# %%
from labkit.labs.production.restart import restart_table

restart_table()

# %% [markdown]
# Started again with the same number of processes, the run ends with the same bits. With another number of processes, the same gradients are added in another order. In FP32 the weights then differ by up to 6e-8. In FP16 the weights are the same here: each gradient has at most 11 significant bits, and FP32 holds the sum of these few gradients exactly in nearly all cases, so the order hardly ever matters.
#
# ### A flipped bit in memory
#
# Bits also flip in memory and in arithmetic units, mostly without an error: **silent data corruption**. Suppose that one random bit flips in one FP32 weight of the course's GPT, drawn from its matrices: 111,104 of the 112,964 parameters. A weight has a sign bit, eight bits of exponent and 23 of mantissa, and nearly all weights are smaller than 1.

# %%
from labkit.labs.production.flips import loss_changes
from labkit.training import trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split

tokens = characters(shakespeare()).encode(shakespeare_split()[1])[: 24 * 65].view(24, 65)
changes = loss_changes(trained_gpt(), tokens, per_bit=8)  # {bit: eight changes in nats}


# %% predict="bits-seen"
@predict(guesses.bits_seen)
def seen():
    moved = [change > 0.01 for by_bit in changes.values() for change in by_bit]
    share = 100 * sum(moved) / len(moved)
    return f"about {min((3, 25, 50, 75), key=lambda c: abs(c - share))} of 100"


# %% [markdown]
# About 3 of 100, one bit of 32: bit 30, the highest of the exponent. Bit 30 is 0 in every weight below 2, and setting it multiplies the weight by 2¹²⁸ (3e38). The next four bits of the exponent are nearly always 1 in these weights, and clearing one of them makes the weight smaller. The last three bits change the weight by a factor of 2, 4 or 16. One such weight of 111,104 matters little. A bit of the mantissa changes the weight by at most half of its value.

# %% [markdown]
# The figure shows the change of the loss by the place of the bit.

# %% tags=["nbval-ignore-output"]
figures.flips_picture(changes)

# %% [markdown]
# So a monitor of the loss (lab 11) misses most flips. Compare what must be equal: digests of the weights on all ranks of a data parallel run, or the results of one step that you run twice.
#
# ### Faults, and a policy for them
#
# The table shows recorded runs in which one of the 120 steps gets a batch of NaNs: in FP16 with a loss scaler, and in BF16 without one.

# %%
recorded.nan_batch_table()

# %% [markdown]
# The scaler finds inf and NaN, and skips the step. Whoever moves from FP16 to BF16 removes the scaler and this guard with it. In BF16, check the gradients yourself: `clip_grad_norm_(..., error_if_nonfinite=True)` raises an error before the update.
#
# Decide before the run how to answer each kind of fault. These decisions are the *fault policy*. A step that the scaler skips while the loss is finite is no fault: the scaler lowers its scale and goes on. After several non-finite steps in a row, the policy rolls back *and* changes something, because a resume that is exact to the bit meets the same numerical fault again.

# %% [markdown]
# ### Exercise: respond to a fault
#
# *14 minutes, optional, about 12 lines.* Write `respond`, which maps an event and a `Plan` to an answer and the plan to go on with.
#
# - **Input:** `event`, a string; `plan`, frozen, with `precision` ("fp16", "bf16" or "fp32"), `micro_batch` (a power of two), `accumulate` and `streak`, the non-finite steps in a row so far, always below `patience`; `patience`, 1 or more.
# - **Output:** the answer and the next plan. Fields that a rule does not name keep their values.
# - **"ok":** "go on", and the streak ends at 0.
# - **"non-finite":** the streak grows by 1 and the answer is "skip". Where it would reach `patience`, the answer is "roll back" instead, with the next wider format (fp16, bf16, fp32) and a streak of 0. If that happens in fp32, no format is wider: the answer is "save and stop", with the plan as it came.
# - **"out of memory":** "retry" with half the micro-batch and twice the accumulation, so the global batch stays. With a micro-batch of 1: "save and stop", with the plan as it came.
# - **"corruption":** a weight in memory is not what it should be. "roll back" in the same format, with a streak of 0.
# - **"loader" and any other event:** "save and stop", with the plan as it came. Another event may hold a word of a rule, such as "host memory low".
# - **Example:** three "non-finite" in a row, from `Plan(precision="fp16", micro_batch=32, accumulate=1)`, give "skip", "skip" and "roll back", and then precision="bf16" with streak=0.

# %%
from dataclasses import replace

from labkit.labs.production.run_plan import Plan

Plan(precision="fp16", micro_batch=32, accumulate=1)


# %% exercise="respond"
def respond(event, plan, patience=3):
    """The answer to an event, and the plan to go on with."""
    ### BEGIN SOLUTION
    if event == "ok":
        return "go on", replace(plan, streak=0)
    if event == "corruption":
        return "roll back", replace(plan, streak=0)
    if event == "out of memory" and plan.micro_batch > 1:
        half, twice = plan.micro_batch // 2, 2 * plan.accumulate
        return "retry", replace(plan, micro_batch=half, accumulate=twice)
    if event == "non-finite":
        if plan.streak + 1 < patience:
            return "skip", replace(plan, streak=plan.streak + 1)
        wider = {"fp16": "bf16", "bf16": "fp32"}.get(plan.precision)
        if wider:
            return "roll back", replace(plan, precision=wider, streak=0)
    return "save and stop", plan
    ### END SOLUTION


# %% check="respond" points=0
checks.check_respond(respond)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which rules change the plan, and which return it as it came? `replace(plan, streak=0)` makes a new plan with one field changed. In which four cases is the answer "save and stop"?
# </details>
# <details><summary>Hint 2</summary>
#
# Write one `if` for each rule that changes the plan, with its condition complete, and let everything else fall through to the last line.
# </details>
# <details><summary>Hint 3</summary>
#
#     if event == "non-finite":
#         if plan.streak + 1 < patience:
#             return "skip", ...
#         ...  # is there a wider format?
#     return "save and stop", plan
# </details>

# %% [markdown]
# ### A run with five faults
#
# *Optional.* `fault_drill` trains a digit reader by such a policy, here with `respond` and `Checkpoints`, and with the `Monitor` of lab 11. Its loop is short enough to read: `labkit/labs/production/drill.py`. Five faults are planted: a NaN batch, an out-of-memory error, a flipped bit in the checkpoint of step 20, three batches that overflow FP16, and a loader that raises. `fault_drill` saves every ten steps, except during a streak, and after each retry or rollback. Each row of the table is an event, its answer, and the step and the plan that follow.

# %% tags=["nbval-ignore-output"]
import pandas as pd
from labkit.labs.production.drill import fault_drill
from labkit.measuring import Monitor
from labkit.training.data import batches, digits
from labkit.training.models import mlp

data, monitor = digits(), Monitor(window=20)
torch.manual_seed(0)
reader = mlp(64, 32, 10)
epoch = batches(data.train_images, data.train_labels, 32)
faults = {7: "NaN batch", 14: "out of memory", 20: "damaged file", 50: "loader"}
with tempfile.TemporaryDirectory() as folder:
    answered = fault_drill(
        reader,
        [*epoch, *epoch],
        (data.test_images, data.test_labels),
        optimizer=torch.optim.SGD(reader.parameters(), lr=0.1),
        plan=Plan(precision="fp16", micro_batch=32, accumulate=1),
        respond=yours(respond, ours.respond),
        checkpoints=yours(Checkpoints, ours.Checkpoints),
        folder=folder,
        monitor=monitor,
        faults=faults | dict.fromkeys((23, 24, 25), "large batch"),
        clip=1.0,
    )
print(*monitor.faults, sep="\n")
pd.DataFrame(answered)

# %% [markdown]
# The NaN batch costs one step. After the out-of-memory error, `respond` halves the micro-batch. Three batches in a row overflow FP16, so the run rolls back, past the damaged file of step 20, to the checkpoint that it saved at step 14 (*next step*), and goes on in BF16, where these batches are finite and clipping bounds their gradients. Finite is not right: the monitor, whose faults stand above the table, reports their loss as a spike. The loader's error stops the run with a checkpoint: another `fault_drill` on this folder would go on there.
#
# ### Optional: before the card is full
#
# Halving the micro-batch costs speed, because a GPU works less well on small matmuls. Before a run you can plan other measures with lab 07's `plan_memory`. It predicts the peak bytes of a training step by what they hold: weights, gradients, optimizer state (moments), 16-bit copies of the weights, activations kept for backward, and temporary tensors. Then it takes one measure after the other until the step fits the budget, here 7 MiB. See how much each measure saves. (The peak comes early in the backward pass, when few gradients exist yet.)

# %% tags=["nbval-ignore-output"]
from labkit.labs.memory_and_many_gpus.plan import plan_memory
from labkit.training import trained_gpt

texts = torch.zeros(16, 64, dtype=torch.int64)
plan = plan_memory(7 * 2**20, trained_gpt(), (texts, texts))
print({role: f"{count / 2**20:.2f} MiB" for role, count in plan.steps[0].peak.by_role.items()})
plan

# %% [markdown]
# ### The served model and the trained one
#
# Another program serves the model, often in another format. Compare the two on held-out text: bits a character, KL divergence (lab 12), and the share of positions at which the most probable character differs. The table has exports of the course's GPT, recorded on five parts of the text. Its first column is bits a character of the export minus those of the FP32 model. *Ties* is the share of positions at which the two largest logits of the export are equal.

# %%
from labkit.labs.production.serving import parity_table

parity_table()

# %% [markdown]
# BF16 changes the bits a character by less than 0.001, but at 0.6 to 0.9 % of the positions `argmax` gives a different character. (BF16 logits are coarse: at more than half of these positions, FP32's choice and the new character have the same BF16 logit, and `argmax` returns the first of equal values.) INT8 by row changes 1.0 to 1.4 %. "The loss is unchanged" and "the answers are unchanged" are two claims: promise the one that you measured.
#
# ### A staged rollout
#
# A **release** is what you can go back to: weights and recipe, with a digest of both. The traffic moves to a new release in stages: *shadow* (mirrored requests; users see only the old release's answers), then 1 %, 10 %, 50 % and 100 %. The gate compares mirrored requests. A **guardrail** is a metric with a fixed limit of its own, such as the number of non-finite outputs or the time of the slowest 1 % of the requests. The cell registers two releases and rolls out the second.

# %%
from labkit.labs.production.canaries import CANARIES, traffic
from labkit.labs.production.drill import flip_bit
from labkit.labs.production.releases import Registry, RolledBack, Tampered, roll_out, stages
from labkit.training import bits_per_character, trained_gpt

name, text = "INT4 by tensor", shakespeare_split()[1][:6_401]
plan, gate = stages(shadow=2_000, live=1_000), yours(Gate, ours.Gate)()
with tempfile.TemporaryDirectory() as folder:
    registry = Registry(Path(folder))
    for fmt, model in {"FP32": trained_gpt(), name: CANARIES[name].export(trained_gpt())}.items():
        evaluated = {"bits": bits_per_character(model, text)}
        second = registry.add({"format": fmt}, model.state_dict(), evaluated)
        if fmt == "FP32":
            registry.promote(second)
    try:
        roll_out(registry, second, plan=plan, gate=gate, traffic=traffic(name))
    except RolledBack as error:
        print(error)
    print(registry.current().version, "answers all requests")
    flip_bit(Path(folder) / "v1.pt")
    try:
        registry.weights(registry.current())
    except Tampered:
        print("v1 with one flipped bit is not loaded")

# %% [markdown]
# The gate takes the INT4 release back in shadow, after 36 compared requests, so no user sees its answers. The digest finds the flipped bit in the file of v1.
#
# The widget replays the answers of seven exports to 37,120 recorded requests, with your gate. Choose the numbers of requests in shadow and in each live stage, then run each of the seven exports to the end under this plan. A good plan brings the two sound exports, BF16 and INT8 by row, to 100 % and rolls the other five back. Then find a plan under which these five give users no wrong answer where the reference is right.

# %% tags=["nbval-ignore-output"]
from labkit.labs.production.widget_rollout import Rollout

rollout = Rollout(gate=yours(Gate, ours.Gate))
rollout

# %% [markdown]
# ### Go or no-go
#
# The review ends with a poll. Each station says *go*, and shows the number and where it is written:
#
# | station | evidence |
# |---|---|
# | statistics | margin, pairs and both controls, fixed before the runs |
# | recovery | a killed run that resumed with the same bits |
# | integrity | a digest of every file; what would find a flip in memory |
# | faults | an answer for each kind, tried on an injected fault |
# | serving | bits a character, KL and share of changed answers of the served model |
# | rollout | stages, gate with α, guardrails, and a tried rollback |

# %% [markdown]
# ### Your GPT in the ledger
#
# *Optional.* The ledger is the table that lab 00 began: bytes, quality and time of your GPT in each format. A row says what a format saves and costs, but not whether it may ship. The cell cuts the held-out text into eight parts, which serve as pairs, and scores FP32 and three other formats. The score is minus the bits a character, so that higher is better. The cell asks `ship` with a margin of 0.02 bits; for eight pairs t is 2.365. Each format that ships becomes a row.

# %% tags=["nbval-ignore-output"]
from labkit.labs.quantization.weights import group_quantize
from labkit.measuring.ledger import Ledger, stored
from labkit.training import bits_per_character, trained_gpt
from labkit.training.data import shakespeare_split

test_text, ledger, decide = shakespeare_split()[1], Ledger(), yours(ship, ours.ship)


def scored(model):
    parts = enumerate(test_text[at : at + 4_600] for at in range(0, 36_800, 4_600))
    return {number: -bits_per_character(model, part) for number, part in parts}


def to_nearest(bits):
    def to_format(name, weight):
        packed = group_quantize(weight, bits=bits)
        return packed.dequantize(), packed.nbytes

    return to_format


# %% tags=["nbval-ignore-output"]
answers, whole = {}, scored(trained_gpt())
for bits in (8, 6, 5):
    model, size = stored(trained_gpt(), to_nearest(bits))
    answers[bits] = decide(whole, scored(model), margin=0.02, t=2.365)
    if answers[bits] == "ship":
        ledger.add("15_production", f"INT{bits}, ships", model, size, whose=whose(decide))
print({f"INT{bits}": answer for bits, answer in answers.items()})
claim(
    f"{whose(decide)} rule ships INT8 and rejects INT5",
    (answers[8], answers[5]) == ("ship", "reject"),
)
ledger

# %% [markdown]
# INT6 takes three quarters of INT8's bytes and ships within this margin. A different margin can give a different answer, so write the margin down before you look at the table.
#
# ### Say it
#
# If a question asks for a spoken answer, say it aloud, sum it up in a line, then tick what you said.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("15_production")

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# **Sources.** Grattafiori et al., *The Llama 3 herd of models*, arXiv:2407.21783, 3.3.4 (interruptions). Schuirmann, 1987 (one-sided tests against a margin). Ville, 1939; Ramdas et al., arXiv:2210.01948 (e-values). Johari et al., arXiv:1512.04922 (looking again and again). Dixit et al., arXiv:2102.11245; Hochschild et al., *Cores that don't count*, 2021 (silent data corruption). PyTorch pull request 28858 and issue 126952 (checksums in `torch.load`).
#
# **Next.** [Lab 17: ship it under a budget](17_ship_it.ipynb), or [lab 16: the interview](16_interview.ipynb).
