"""The pull request that lab 05 reviews: six hunks, loops as people publish them, written anew.

The lab's ``test_pull_request.py`` runs each: a hunk with a fault breaks in the way that ``why``
says, the others train as they should.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """Some lines of a pull request.

    Args:
        about: the file, and what the author says of the lines.
        text: the lines.
        faulty: whether a reviewer must ask for a change.
        why: what is wrong, or why it is right although it looks odd.
    """

    about: str
    text: str
    faulty: bool
    why: str

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
        about="model.py: switch on mixed precision",
        text="""
model = Classifier().to(device).half()  # autocast keeps the float32 masters
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device)
""",
        faulty=True,
        why="`.half()` makes the weights FP16. Autocast keeps no FP32 copy, and the scaler refuses "
        "FP16 gradients.",
    ),
    Hunk(
        about="finetune.py: a short loop",
        text="""
for inputs, targets in loader:
"""
        + _LOSS
        + """\
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # scales the loss as autocast computed it
    scaler.update()
""",
        faulty=True,
        why="No `zero_grad`. After the first overflow every gradient stays inf, and every step is "
        "skipped.",
    ),
    Hunk(
        about="clip.py: clip the norm",
        text="""
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
        faulty=False,
        why="Right. The scaler remembers that `unscale_` was called, so `step` does not divide "
        "again.",
    ),
    Hunk(
        about="clip_old.py: clip, and adjust the scale",
        text="""
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
        faulty=True,
        why="It clips scaled gradients, and the second `update` has no inf check to use: it raises "
        "at batch 0.",
    ),
    Hunk(
        about="amp_utils.py: for any device",
        text="""
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
        faulty=True,
        why="`torch.cuda.amp` takes no device. Without CUDA both parts warn and switch themselves "
        "off, and the loop trains in FP32.",
    ),
    Hunk(
        about="gan.py: two networks",
        text="""
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
        faulty=False,
        why="Right. One scale serves both optimizers, so one `update` after both steps is enough. "
        "G's backward also fills D's gradients, and the first line empties them.",
    ),
)


def pull_request() -> str:
    """The hunks as text, numbered from 1."""
    return "\n\n".join(
        "\n".join([f"@@ {number}. {hunk.about}", *(f"+ {line}" for line in hunk.lines)])
        for number, hunk in enumerate(HUNKS, start=1)
    )
