"""Check of lab 05's review: a pull request of eight hunks, some of them right.

The hunks are loops as people publish them, written anew. The lab's ``test_amp_review.py`` runs
each: a hunk with a fault breaks in the way its reason says, the others train as they should.
"""

from dataclasses import dataclass, field
from types import MappingProxyType

from labkit.labs.engine import Mistake, check, word

LAB = "05_automatic_mixed_precision"

MISSED = "Hunk {number} has a fault that no comment names."
NO_LINE = "The pull request has no line {line}."
NOT_TRUE = 'Line {line}, `{text}`: "{meaning}" is not true here.'
OTHER_LINE = "Line {line}, `{text}`: not this line of hunk {number}. Which one?"

REASONS = MappingProxyType(
    {
        "weights": "the weights are no longer float32",
        "stale": "gradients of an earlier backward are still there",
        "scaled": "works on scaled gradients",
        "twice": "is called once too often",
        "silent": "does nothing on this device, and training goes on",
        "outside": "belongs inside the autocast block",
        "undone": "does what step does again",
        "missing": "each optimizer needs an update of its own",
    }
)
"""What a comment may say."""


@dataclass(frozen=True)
class Hunk:
    """Some lines of a pull request.

    ``faults`` maps a reason to the lines, counted from 1 in the hunk, at which it may be said, and
    the idea that a reviewer holds who does not see it. ``tempting`` maps a reason to the idea of
    somebody who writes it here, where it is wrong.
    """

    about: str
    text: str
    faults: dict = field(default_factory=dict)
    tempting: dict = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """The lines of the hunk."""
        return self.text.strip("\n").split("\n")


_LOSS = """\
    with torch.autocast(device, dtype=torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
"""

HUNKS = (
    Hunk(
        "model.py: switch on mixed precision",
        """
model = Classifier().to(device).half()  # autocast keeps the float32 masters
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device)
""",
        faults={"weights": ((1, 2), "half-is-mixed-precision")},
    ),
    Hunk(
        "train.py: one step",
        """
for inputs, targets in loader:
    optimizer.zero_grad()
"""
        + _LOSS
        + """\
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        tempting={"outside": "backward-belongs-inside-autocast"},
    ),
    Hunk(
        "finetune.py: the same, shorter",
        """
for inputs, targets in loader:
"""
        + _LOSS
        + """\
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # scales the loss as autocast computed it
    scaler.update()
""",
        faults=MappingProxyType({"stale": ((1, 2, 3, 4, 5, 6), "gradients-reset-themselves")}),
        tempting={"outside": "backward-belongs-inside-autocast"},
    ),
    Hunk(
        "clip.py: clip the norm",
        """
for inputs, targets in loader:
    optimizer.zero_grad()
"""
        + _LOSS
        + """\
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
""",
        tempting=MappingProxyType(
            {
                "undone": "step-unscales-once-more",
                "scaled": "step-unscales-once-more",
                "outside": "backward-belongs-inside-autocast",
            }
        ),
    ),
    Hunk(
        "clip_old.py: clip, and adjust the scale",
        """
for batch, (inputs, targets) in enumerate(loader):
    optimizer.zero_grad()
"""
        + _LOSS
        + """\
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
    if batch % 100 == 0:
        scaler.update()  # adjust the scale dynamically
""",
        faults=MappingProxyType(
            {
                "scaled": ((5, 6), "clip-before-unscale"),
                "twice": ((9, 10), "update-may-be-called-again"),
            }
        ),
        tempting={"outside": "backward-belongs-inside-autocast"},
    ),
    Hunk(
        "amp_utils.py: for any device",
        """
from torch.cuda.amp import GradScaler, autocast
scaler = GradScaler()
for inputs, targets in loader:
    optimizer.zero_grad()
    with autocast():
        loss = F.cross_entropy(model(inputs.to(device)), targets.to(device))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        faults={"silent": ((1, 2, 5), "cuda-amp-works-everywhere")},
        tempting={"outside": "backward-belongs-inside-autocast"},
    ),
    Hunk(
        "gan.py: two networks",
        """
d_optimizer.zero_grad()
with torch.autocast(device, dtype=torch.float16):
    d_loss = loss_of_d(real, generator(noise).detach())
scaler.scale(d_loss).backward()
scaler.step(d_optimizer)
g_optimizer.zero_grad()
with torch.autocast(device, dtype=torch.float16):
    g_loss = loss_of_g(generator(noise))
scaler.scale(g_loss).backward()
scaler.step(g_optimizer)
scaler.update()
""",
        tempting=MappingProxyType(
            {
                "missing": "one-update-per-optimizer",
                "stale": "g-backward-leaves-d-alone",
                "outside": "backward-belongs-inside-autocast",
            }
        ),
    ),
    Hunk(
        "warm_up.py: one pass to fill the caches, then train in BF16",
        """
F.cross_entropy(model(first_inputs), first_targets).backward()
for inputs, targets in loader:
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
        faults={"stale": ((1, 2, 3, 4, 5, 6, 7), "zero-grad-at-the-end-is-enough")},
        tempting={"outside": "backward-belongs-inside-autocast"},
    ),
)


def starts() -> list[int]:
    """The number of each hunk's first line."""
    numbers = [1]
    for hunk in HUNKS:
        numbers.append(numbers[-1] + len(hunk.lines))
    return numbers[:-1]


def pull_request() -> str:
    """The pull request with its lines numbered, and what a comment on it may say."""
    said = []
    for number, (start, hunk) in enumerate(zip(starts(), HUNKS, strict=True), start=1):
        said.append(f"@@ {number}. {hunk.about}")
        said += [f"{line:3} + {text}" for line, text in enumerate(hunk.lines, start=start)]
        said.append("")
    said.append("Reasons for a comment:")
    said += [f"{reason:>10}: {meaning}" for reason, meaning in REASONS.items()]
    return "\n".join(said)


def run_review(comments):
    """A review is data already."""
    return comments


@check(run_review)
def check_review(comments):
    """A review that finds every fault, and leaves alone what looks wrong and is right."""
    if type(comments) is not dict or not all(type(line) is int for line in comments):
        raise Mistake("A review is a dict: the number of a line -> one of the reasons.")
    found = {place: set() for place in range(len(HUNKS))}
    for line, reason in comments.items():
        place, within = _place(line)
        reason = word(reason, REASONS, call=f"review[{line}]")
        found[place].add((within, reason, line))
    for place, said in found.items():
        for within, reason, line in sorted(said):
            _judge_comment(HUNKS[place], place, within, reason, line)
    missed = [
        (place, idea)
        for place, hunk in enumerate(HUNKS)
        for reason, (_, idea) in hunk.faults.items()
        if reason not in {said[1] for said in found[place]}
    ]
    if missed:
        place, idea = missed[0]
        approved = not any(found.values())
        # Of a review that is not finished nobody knows what its author has seen.
        unfinished = None if len(missed) > 1 else idea
        raise Mistake(
            MISSED,
            number=place + 1,
            misconception="what-runs-is-right" if approved else unfinished,
            search=False,
        )


def _place(line):
    """(hunk, line in it) of a line's number, both as the hunk's author counts."""
    for place, start in reversed(list(enumerate(starts()))):
        if start <= line < start + len(HUNKS[place].lines):
            return place, line - start + 1
    raise Mistake(NO_LINE, line=line)


def _judge_comment(hunk, place, within, reason, line):
    text = hunk.lines[within - 1].strip()
    if reason not in hunk.faults:
        idea = hunk.tempting.get(reason)
        if idea == "backward-belongs-inside-autocast" and "zero_grad" in text:
            idea = "zero-grad-belongs-inside-autocast"
        raise Mistake(NOT_TRUE, line=line, text=text, meaning=REASONS[reason], misconception=idea)
    lines, _ = hunk.faults[reason]
    if within not in lines:
        raise Mistake(OTHER_LINE, line=line, text=text, number=place + 1)


def _at(hunk, within):
    return starts()[hunk - 1] + within - 1


for _idea, _question, _line, _reason in (
    ("backward-belongs-inside-autocast", "Each backward runs in the dtype of its forward. What "
     "would the block add?", _at(2, 5), "outside"),
    ("zero-grad-belongs-inside-autocast", "zero_grad computes nothing. What could a dtype change?",
     _at(2, 2), "outside"),
    ("step-unscales-once-more", "The scaler remembers that it has unscaled. Then what does step "
     "do?", _at(4, 6), "undone"),
    ("one-update-per-optimizer", "There is one scale. How often has it to be decided?",
     _at(7, 5), "missing"),
    ("g-backward-leaves-d-alone", "G's backward does fill D's gradients. Which line empties them "
     "before D uses its own?", _at(7, 9), "stale"),
):  # fmt: skip
    check_review.slip(_idea, _question, swap=("}", f', {_line}: "{_reason}"}}'))

for _idea, _question, _missed in (
    ("half-is-mixed-precision", "Which dtype have the weights after the first hunk, and who keeps "
     "a float32 copy?", '1: "weights", '),
    ("gradients-reset-themselves", "Compare hunks 2 and 3 line by line. What is gone?",
     '14: "stale", '),
    ("clip-before-unscale", "What is the norm of these gradients, with a scale of 65536?",
     '31: "scaled", '),
    ("update-may-be-called-again", "Batch 0 comes here too. What has the second call to go by?",
     '35: "twice", '),
    ("cuda-amp-works-everywhere", "Run it on a CPU and print a dtype. What was switched on?",
     '36: "silent", '),
    ("zero-grad-at-the-end-is-enough", "The end of each step is clean. And before the first?",
     ', 56: "stale"'),
):  # fmt: skip
    check_review.slip(_idea, _question, cut=_missed)

check_review.wrong(
    "what-runs-is-right",
    "Some faulty hunks run without an error. Do all eight train as they should?",
)({})
