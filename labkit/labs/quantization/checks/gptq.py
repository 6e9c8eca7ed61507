"""Check of lab 09: GPTQ, judged by least squares that are solved again after each column."""

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "09_quantization"

RAISED = "{name}: your gptq raised {error}."
CHANGED = (
    "{name}: after your gptq, the caller's W[{row}, {column}] is {got} where it was {want}. On "
    "which tensor does your loop write?"
)
OFF_GRID = (
    "{name}: Q[{row}, {column}] is {got}, and that is {steps} times its scale of {scale}; a code "
    "from -7 to 7 times the scale is wanted. {why}"
)
A_CODE = "All values of your Q are integers from -7 to 7: by what must a code be multiplied?"
PLAIN = (
    "In every case your Q is what rounding each weight by itself gives. Does the error of a column "
    "change what you round next? If your loop does subtract something, print it: in an upper "
    "factor, row j holds the corrections of the columns to the right, and column j holds zeros "
    "there. In a lower factor it is the other way round."
)
FIRST_COLUMN = (
    "{name}: Q[{row}, 0] has the code {got:d}; {want:d} is wanted. W[{row}, 0] is {weight} steps, "
    "and column 0 is rounded first, as it is."
)
OTHER_CODE = (
    "{name}: Q[{row}, {column}] has the code {got:d}; {want:d} is wanted. W[{row}, {column}] is "
    "{weight} steps. To make up for the columns before, which are right, it must become {value} "
    "steps before it is rounded. {why}"
)
CALLERS_ERROR = (
    "Your codes come out if the error of a column is that of the caller's W. Its error is what "
    "rounding changed in the column as it was just before."
)
NEIGHBOUR_ALONE = "Your codes come out if a column corrects the next one alone."
CLIPPED_FIRST = (
    "Your codes come out if W is clipped to seven steps before the first column. What is clipped "
    "is an error too."
)

# In steps: the inverse of H in float32 may decide a value near a tie otherwise than float64. At
# seeds 0 to 49 the solution needs no room at all.
_ROOM = 2.0**-8


def _problems(seed):
    """W, X, scale and damp of each call."""
    draw = torch.Generator().manual_seed(seed)

    def problem(rows, width, count, *, grid=1.0, group=None):
        # Inputs that are correlated, and of unlike sizes, as a network's are.
        mix = torch.randn(width, width, generator=draw) * torch.logspace(0, -1, width)
        X = torch.randn(count, width, generator=draw) @ mix
        W = torch.randn(rows, width, generator=draw)
        groups = W.unflatten(1, (-1, group or width))
        scale = grid * groups.abs().amax(dim=2, keepdim=True).expand_as(groups) / 7
        return W, X, scale.flatten(1).contiguous()

    dead = problem(4, 12, 40)
    dead[1][:, 5] = 0
    return {
        "the example": (
            torch.tensor([[0.6, 0.7]]), torch.ones(1, 2), torch.ones(1, 2), {}
        ),
        "correlated inputs": (*problem(8, 24, 256), {}),
        "an input that is always 0": (*dead, {}),
        "8 inputs for 16 columns": (*problem(4, 16, 8), {}),
        "a scale for each 4 weights": (*problem(6, 16, 64, group=4), {}),
        "weights beyond seven steps": (*problem(6, 16, 64, grid=0.6), {}),
        "damp = 0.5": (*problem(6, 16, 64), {"damp": 0.5}),
    }  # fmt: skip


def run_gptq(gptq, seed):
    """Each call's Q, and the caller's W afterwards."""
    return {
        name: (attempt(gptq, W, X, scale, **damp), W)
        for name, (W, X, scale, damp) in _problems(seed).items()
    }


@check(run_gptq)
def check_gptq(found, seed):
    """Each column is rounded, and the columns to its right make up for the error."""
    problems, plain = _problems(seed), []
    for name, (W, X, scale, damp) in problems.items():
        Q, after = found[name]
        if type(Q) is Raised:
            # What raises without damping is known, and may be named.
            kind = Mistake if Q.type_name.endswith("LinAlgError") else AnswerError
            raise kind(fill(RAISED, name=name, error=failure(Q)))
        Q = tensor(Q, call=f"gptq with {name}", shape=W.shape).double()
        if not torch.equal(after, W):
            row, column = (after != W).nonzero()[0].tolist()
            got, want = after[row, column].item(), W[row, column].item()
            raise Mistake(CHANGED, name=name, row=row, column=column, got=got, want=want)
        W, X, scale = W.double(), X.double(), scale.double()
        codes = _codes(Q, scale, name)
        plain.append(torch.equal(codes, (W / scale).round().clamp(-7, 7)))
        problems[name] = codes, (_damped(X, damp.get("damp", 0.01)), W, scale)
    if all(plain):
        raise Mistake(PLAIN, search=False)
    for name, (codes, problem) in problems.items():
        _judge_codes(name, codes, problem)


def _codes(Q, scale, name):
    """The codes of Q; a value that is no code times its scale is a mistake."""
    steps = Q / scale
    codes = steps.round()
    # A code times a scale is rounded once.
    off = ~(((steps - codes).abs() <= 2.0**-20) & (codes.abs() <= 7))
    if off.any():
        row, column = off.nonzero()[0].tolist()
        are_codes = torch.equal(Q, Q.round()) and Q.abs().max() <= 7
        raise Mistake(
            OFF_GRID,
            name=name,
            row=row,
            column=column,
            got=Q[row, column].item(),
            steps=steps[row, column].item(),
            scale=scale[row, column].item(),
            why=A_CODE if are_codes else "",
        )
    return codes


def _damped(X, damp):
    """The inputs, with rows below them whose squares are the damping of H."""
    width = X.shape[1]
    size = (damp * X.square().sum(dim=0).mean()).sqrt()
    return torch.cat([X, size * torch.eye(width, dtype=X.dtype)])


def _wanted(codes, problem, column):
    """What a column should be before it is rounded, in steps: least squares, solved anew.

    The columns before it have the codes of the answer. Those from it on are free, and the outputs
    shall be as near to those of W as they can.
    """
    A, W, scale = problem
    lost = A @ W.T - A[:, :column] @ (codes * scale)[:, :column].T
    return torch.linalg.lstsq(A[:, column:], lost).solution[0] / scale[:, column]


def _judge_codes(name, codes, problem):
    """Each column has the nearest codes to what it should be after the columns before."""
    _, W, scale = problem
    for column in range(codes.shape[1]):
        value = _wanted(codes, problem, column)
        off = (codes[:, column] - value.clamp(-7, 7)).abs() - 0.5
        if off.max() <= _ROOM:
            continue
        row = int(off.argmax())
        said = {"why": _explained(codes, problem)} if column else {}
        raise Mistake(
            OTHER_CODE if column else FIRST_COLUMN,
            name=name,
            row=row,
            column=column,
            got=int(codes[row, column]),
            want=int(value[row].round().clamp(-7, 7)),
            weight=(W / scale)[row, column].item(),
            value=value[row].item(),
            **said,
        )


def _explained(codes, problem):
    """The sentence of the mistake that gives all these codes, or ""."""
    A, W, scale = problem
    U = torch.linalg.cholesky(torch.linalg.inv(A.T @ A), upper=True)
    beside = U.triu() - U.triu(2)
    others = {
        CALLERS_ERROR: _columns(W, scale, U, given=W),
        NEIGHBOUR_ALONE: _columns(W, scale, beside),
        CLIPPED_FIRST: _columns(W.clamp(-7 * scale, 7 * scale), scale, U),
    }
    return next((why for why, other in others.items() if torch.equal(codes, other)), "")


def _columns(W, scale, U, given=None):
    """Codes column by column, with errors of W as it is now or of the given one."""
    W, codes = W.clone(), torch.zeros_like(W)
    for j in range(W.shape[1]):
        codes[:, j] = (W[:, j] / scale[:, j]).round().clamp(-7, 7)
        error = (W if given is None else given)[:, j] - codes[:, j] * scale[:, j]
        W[:, j:] -= torch.outer(error / U[j, j], U[j, j:])
    return codes


check_gptq.slip(
    "errors-add-up-in-the-neighbours",
    "Column j was rounded up. In which direction must a column move whose input is like its own?",
    swap=("-= torch.outer", "+= torch.outer"),
)
check_gptq.slip(
    "one-division-is-enough",
    "Row j of U times the error is too small or too large by one factor. Which element of U must "
    "leave column j with no error?",
    swap=("(W[:, j] - Q[:, j]) / U[j, j]", "W[:, j] - Q[:, j]"),
)
check_gptq.slip(
    "rounded-columns-stay-free",
    "A row of the inverse of H still counts on the columns to the left, which are rounded. Which "
    "factor of the inverse leaves them out?",
    swap=("torch.linalg.cholesky(torch.linalg.inv(H), upper=True)", "torch.linalg.inv(H)"),
)
check_gptq.slip(
    "h-is-its-own-inverse",
    "The factor of H itself says how inputs go together. Of which matrix do you need the factor?",
    swap=("torch.linalg.inv(H)", "H"),
)
check_gptq.slip(
    "gptq-looks-at-the-weights",
    "Which inputs a layer gets does not stand in W. Of which matrix is H made?",
    swap=("H = X.T @ X", "H = W.T @ W"),
)
check_gptq.slip(
    "any-h-has-an-inverse",
    "H has no inverse if X has fewer rows than columns, or if an input is always 0. What must be "
    "added to its diagonal?",
    swap=("H + damp * H.diag().mean() * torch.eye(len(H))", "H"),
)
check_gptq.slip(
    "damping-is-absolute",
    "A damping of 0.01 means 1 % of something. Of which number?",
    swap=("damp * H.diag().mean()", "damp"),
)
check_gptq.slip(
    "arguments-are-copies",
    "A tensor that is passed to a function is the caller's. Which call makes one of your own?",
    swap=("W.clone()", "W"),
)
