"""Check of lab 11's tolerance of a sum: beside the bound in float64, and sums in many orders."""

import math

import numpy as np
import torch

from labkit.labs.engine import Mistake, attempt, check, number
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill

LAB = "11_monitoring_and_debugging"

CHANGED = (
    "tolerance changes its arguments: after the call with {name} they hold other values. Which "
    "operations return a new tensor?"
)
OTHER = "tolerance with {name} is {got}; {want} is wanted. {why}"
TOO_SMALL = "Two orders of the additions give {low} and {high}: {apart} apart, and both are right."
A_FAULT = "One term that is left out changes the sum by {fault}, and your tolerance lets it pass."
COMES_OUT = "Yours comes out {how}."

_CASES = (
    "1,000 products that nearly cancel", "100,000 products", "products around 1e-30", "the example",
)  # fmt: skip


def _vectors(name, seed):
    draw = torch.Generator().manual_seed(seed)
    if name == "the example":
        return torch.tensor([1.0, 2.0, 4.0]), torch.tensor([3.0, -4.0, 0.5])
    count = 100_000 if name == "100,000 products" else 1000
    a, b = torch.randn(2, count, generator=draw)
    if count == 100_000:
        return a.abs(), b.abs()
    b[-1] = -(a[:-1].double() @ b[:-1].double()).float() / a[-1]  # what is left is near 0
    return (1e-15 * a, 1e-15 * b) if name == "products around 1e-30" else (a, b)


def run_same_sum(tolerance, seed):
    """The tolerance of each pair of vectors, and whether the call changed them."""
    shown, changed = {}, {}
    for name in _CASES:
        vectors = _vectors(name, seed)
        shown[name] = attempt(tolerance, *vectors)
        changed[name] = not all(map(torch.equal, vectors, _vectors(name, seed)))
    return shown, changed


@check(run_same_sum)
def check_same_sum(shown, seed):
    """How far two orders of the same additions can lie apart."""
    shown, changed = shown
    for name in _CASES:
        a, b = _vectors(name, seed)
        got = _got(name, shown)
        n, u = len(a), 2.0**-24
        bound = 2 * n * u / (1 - n * u)
        want = bound * math.fsum((a.double() * b.double()).abs().tolist())
        # An answer may add in float32: n u at most, 6e-3 here, and some 1e-6 as torch adds. With
        # n - 1 for n, 1,000 products come out 1e-3 too low: the example shows that more clearly.
        if not abs(got - want) <= 1.5e-3 * want:
            why, idea = _why(name, shown, want, seed)
            raise Mistake(OTHER, name=name, got=got, want=want, why=why, misconception=idea)
        if changed[name]:
            raise Mistake(CHANGED, name=name)


def _got(name, shown):
    return number(shown[name], call=f"tolerance with {name}")


def _others(a, b):
    """What each mistake gives: how it is said, and its idea."""
    n, u = len(a), 2.0**-24
    products = a.double() * b.double()
    size, total = products.abs().sum().item(), abs(products.sum().item())
    bound = n * u / (1 - n * u)
    return {
        ("with the magnitude of the sum in the place of the sum of the magnitudes",
         "a-tolerance-follows-the-result"): 2 * bound * total,
        ("with u = 2**-23, which is eps", "u-is-eps"): (
            2 * n * 2 * u / (1 - n * 2 * u) * size
        ),
        ("with the largest product in the place of the sum", None): (
            2 * bound * products.abs().max().item()
        ),
        ("for one order: two orders may be off in opposite directions",
         "one-order-is-exact"): bound * size,
        ("with the sums of |a| and of |b|, each by itself", None): (
            2 * bound * a.double().abs().sum().item() * b.double().abs().sum().item()
        ),
        ("without the division by 1 - n u", None): 2 * n * u * size,
        ("with 1 + n u in the place of 1 - n u", None): 2 * n * u / (1 + n * u) * size,
        ("with n - 1 in the place of n: each product is rounded too", None): (
            2 * (n - 1) * u / (1 - (n - 1) * u) * size
        ),
        ("for one order and with u = 2**-23, which is eps", None): (
            n * 2 * u / (1 - n * 2 * u) * size
        ),
        ("with 4 gamma in the place of 2 gamma", None): 4 * bound * size,
        ("with the u of float64, 2**-53", None): 2 * n * 2.0**-53 * size,
        ("without the sum: it is 2 gamma", None): 2 * bound,
        ("divided by the magnitude of the sum", None): 2 * bound * size / (total or math.nan),
        ("with the product of the norms of a and b in the place of the sum", None): (
            2 * bound * (a.double().norm() * b.double().norm()).item()
        ),
        ("without n: one rounding for all additions", None): 2 * u / (1 - u) * size,
        ("with the root of n in the place of n", None): (
            2 * math.sqrt(n) * u / (1 - math.sqrt(n) * u) * size
        ),
    }  # fmt: skip


def _why(name, shown, want, seed):
    """The one mistake that gives the numbers of all cases; and what the tolerance would do."""
    mistakes = {
        case: _others(*_vectors(case, seed)) for case in _CASES if type(shown[case]) is not Raised
    }
    fitting = [
        key
        for key, other in mistakes[name].items()
        if abs(other - want) > 2e-3 * want
        and all(
            abs(_got(case, shown) - others[key]) <= 1e-3 * others[key]
            for case, others in mistakes.items()
        )
    ]
    said, idea = [], None
    if len(fitting) == 1:
        how, idea = fitting[0]
        said.append(fill(COMES_OUT, how=how))
    got, (a, b) = _got(name, shown), _vectors(name, seed)
    products = a.double() * b.double()
    low, high = _extremes(products)
    if high - low > got:
        said.append(fill(TOO_SMALL, low=low, high=high, apart=high - low))
    elif got > 2 * want and got > (fault := products.abs().median().item()):
        said.append(fill(A_FAULT, fault=fault))
    return " ".join(said), idea


def _extremes(products):
    """The smallest and the largest float32 sum in some orders, one addition after the other."""
    small = products.float().numpy()
    draw = np.random.default_rng(0)
    orders = [small, np.sort(small), *(draw.permutation(small) for _ in range(20))]
    sums = [np.add.accumulate(order)[-1].item() for order in orders]
    return min(sums), max(sums)


_SUM = "(a.double() * b.double()).abs().sum().item()"

check_same_sum.slip(
    "a-tolerance-follows-the-result",
    "The terms nearly cancel, and their roundings do not. With which sum do the roundings grow?",
    swap=(_SUM, "abs((a.double() * b.double()).sum().item())"),
)
check_same_sum.slip(
    "u-is-eps",
    "eps is the gap above 1. By how much can rounding to nearest move a number near 1?",
    swap=("2.0**-24", "2.0**-23"),
)
check_same_sum.slip(
    "one-order-is-exact",
    "The bound holds for each order against the exact sum. How far apart can two orders be?",
    swap=("return 2 * gamma", "return gamma"),
)
check_same_sum.slip(
    "default-tolerances-know-the-sum",
    "These are the tolerances of `assert_close`. Neither 1e-5 nor the sum itself says how large "
    "the terms are. With which sum do the roundings grow?",
    swap=(f"2 * gamma * {_SUM}", "1e-5 + 1.3e-6 * abs((a.double() * b.double()).sum().item())"),
)
