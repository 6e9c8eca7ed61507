# Answers to lab 16 that the author of its checks had not foreseen: see tests/corpus.py.

from torch.nn import functional as F
from labkit.labs.interview.handmade import HandmadeGPT

# %% right gpt16: only the statistics in float32, division by a root
class GPT16(HandmadeGPT):
    def norm(self, x):
        return x / (x.float().pow(2).mean(-1, keepdim=True) + 1e-8).sqrt()

    def attend(self, query, key, value):
        scores = self.norm(query) @ self.norm(key).transpose(-2, -1)
        size = scores.shape[-1]
        future = torch.triu(torch.ones(size, size, dtype=torch.bool), diagonal=1)
        scores = scores.masked_fill(future, float("-inf"))
        return F.softmax(scores, dim=-1) @ value


# %% right gpt16: an additive mask of -inf
class GPT16(HandmadeGPT):
    def norm(self, x):
        wide = x.float()
        return (wide / torch.sqrt(torch.mean(wide * wide, -1, True) + 1e-8)).to(x.dtype)

    def attend(self, query, key, value):
        scores = self.norm(query) @ self.norm(key).mT
        mask = torch.full(scores.shape[-2:], -math.inf).triu(1)
        return (scores + mask).softmax(-1) @ value


# %% right gpt16: autocast off for the norm, finfo.min for the mask
class GPT16(HandmadeGPT):
    def norm(self, x):
        with torch.autocast(x.device.type, enabled=False):
            return super().norm(x.float())

    def attend(self, query, key, value):
        scores = torch.einsum("...qd,...kd->...qk", self.norm(query), self.norm(key))
        rows = torch.arange(scores.shape[-1])
        scores = scores.masked_fill(rows[None] > rows[:, None], torch.finfo(scores.dtype).min)
        return torch.einsum("...qk,...kd->...qd", scores.softmax(-1), value)


# %% right gpt16: rms_norm and scaled_dot_product_attention
class GPT16(HandmadeGPT):
    def norm(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), eps=1e-8)

    def attend(self, query, key, value):
        q, k = self.norm(query).to(value.dtype), self.norm(key).to(value.dtype)
        return F.scaled_dot_product_attention(q, k, value, is_causal=True, scale=1)

    def loss(self, logits, next_tokens):
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), next_tokens.reshape(-1))


# %% right gpt16: scores in float32 from the start
class GPT16(HandmadeGPT):
    def norm(self, x):
        x = x.double()
        return (x * (x.square().mean(-1, keepdim=True) + 1e-8).rsqrt()).float()

    def attend(self, query, key, value):
        with torch.autocast("cpu", enabled=False):
            scores = self.norm(query) @ self.norm(key).transpose(-1, -2)
            keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            weights = torch.where(keep, scores, -math.inf).softmax(dim=-1)
        return weights @ value.float()


# %% right gpt16: the solution with numpy's infinity
GPT16 = changed("-math.inf", "-float('inf')")

# %% right gpt16: all of attention in float32
class GPT16(ours.GPT16):
    def attend(self, query, key, value):
        with torch.autocast("cpu", enabled=False):
            return super().attend(query.float(), key.float(), value.float())


# %% wrong gpt16: half() on everything
#    says: float32: RuntimeError
class GPT16(HandmadeGPT):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.half()


# %% wrong gpt16: a norm that returns BF16
#    says: float32: RuntimeError: expected m1 and m2 to have the same dtype
class GPT16(ours.GPT16):
    def norm(self, x):
        return super().norm(x).bfloat16()


# %% wrong gpt16: nothing changed
#    idea: mask-constant-overflows
#    says: FP16: RuntimeError
class GPT16(HandmadeGPT):
    pass


# %% wrong gpt16: the mask mended and not the norm
#    idea: unlisted-ops-run-in-fp32
GPT16 = changed("x = x.float()", "pass")

# %% wrong gpt16: no mask
#    says: the logits are
class GPT16(ours.GPT16):
    def attend(self, query, key, value):
        scores = self.norm(query) @ self.norm(key).transpose(-2, -1)
        return scores.softmax(dim=-1) @ value


# %% wrong gpt16: the mask the wrong way round
#    says: 22 of 132 logits are inf or NaN
GPT16 = changed(".triu(1).bool()", ".tril(-1).bool()", "scores.masked_fill(future", "scores.masked_fill(~future")

# %% wrong gpt16: the token itself is hidden, too
#    says: 22 of 132 logits are inf or NaN
GPT16 = changed("triu(1)", "triu(0)")

# %% wrong gpt16: softmax over the queries
#    says: float32
GPT16 = changed("softmax(dim=-1)", "softmax(dim=-2)")

# %% wrong gpt16: scores divided by the root of the width
#    says: off those of HandmadeGPT
GPT16 = changed("scores.masked_fill", "(scores / query.shape[-1] ** 0.5).masked_fill")

# %% wrong gpt16: autocast off around all but the feed-forward part
#    says: feed_forward.0 has dtype float16; float32 is wanted
class GPT16(ours.GPT16):
    def forward(self, tokens):
        with torch.autocast("cpu", enabled=False):
            feed = self.feed_forward.forward
            self.feed_forward.forward = lambda x: self._narrow(feed, x)
            return super().forward(tokens)

    def _narrow(self, feed, x):
        with torch.autocast("cpu", torch.float16):
            return feed(x)


# %% wrong gpt16: no class at all
#    says: float32: AttributeError
GPT16 = lambda *sizes: None

# %% wrong gpt16: layer norm for rms norm
#    says: off those of HandmadeGPT
class GPT16(ours.GPT16):
    def norm(self, x):
        return F.layer_norm(x.float(), x.shape[-1:], eps=1e-8)


# %% wrong gpt16: eps of the library
#    says: tiny weights
class GPT16(ours.GPT16):
    def norm(self, x):
        return F.rms_norm(x.float(), x.shape[-1:])


# %% wrong gpt16: a loss in FP16
#    says: the loss has dtype float16; float32 is wanted
class GPT16(ours.GPT16):
    def loss(self, logits, next_tokens):
        return super().loss(logits, next_tokens).half()


# %% wrong gpt16: an eps in the logarithm
#    says: far logits
class GPT16(ours.GPT16):
    def loss(self, logits, next_tokens):
        p = logits.float().softmax(-1).gather(-1, next_tokens[..., None])
        return -(p + 1e-8).log().mean()


# %% wrong gpt16: the square upcast, after it was made
#    idea: upcast-too-late
class GPT16(ours.GPT16):
    def norm(self, x):
        return x * torch.rsqrt((x * x).float().mean(-1, keepdim=True) + 1e-8)


# %% right train-amp: a scaler of one's own, with growth
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    scale, good = state or (65536.0, 0)
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        model.zero_grad()
        told = []
        for tokens, following in group:
            with torch.autocast(device, torch.float16):
                told.append(model.loss(model(tokens), following))
            (told[-1] * (scale / len(group))).backward()
        for parameter in model.parameters():
            parameter.grad /= scale
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        if norm.isfinite():
            optimizer.step()
            good += 1
            if good == 2000:
                scale, good = scale * 2, 0
        else:
            scale, good = scale / 2, 0
        losses.append(sum(loss.item() for loss in told) / len(told))
        norms.append(norm)
    return losses, norms, (scale, good)


# %% right train-amp: the scaler is the state, micro-batches are counted
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    scaler = state or torch.amp.GradScaler(device)
    losses, norms = [], []
    sizes = [every] * (len(batches) // every) + [len(batches) % every or every]
    optimizer.zero_grad()
    for place, (tokens, following) in enumerate(batches):
        size = sizes[place // every]
        with torch.autocast(device_type=device, dtype=torch.float16):
            loss = model.loss(model(tokens), following)
        scaler.scale(loss / size).backward()
        losses += [] if place % every else [0.0]
        losses[-1] += loss.item() / size
        if (place + 1) % every == 0 or place + 1 == len(batches):
            scaler.unscale_(optimizer)
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return losses, norms, scaler


# %% right train-amp: losses summed undivided, gradients divided before the clip
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    scaler = torch.amp.GradScaler(device)
    if state:
        scaler.load_state_dict(state)
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        optimizer.zero_grad()
        total = 0.0
        for tokens, next_tokens in group:
            with torch.autocast(device, dtype=torch.float16):
                loss = model.loss(model(tokens), next_tokens)
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        for p in model.parameters():
            p.grad.div_(len(group))
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        scaler.step(optimizer)
        scaler.update()
        losses.append(total / len(group))
    return losses, norms, scaler.state_dict()


# %% right train-amp: scale and counter carried by hand
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    scaler = torch.amp.GradScaler(device)
    if state is not None:
        scaler.load_state_dict(scaler.state_dict() | state)
    losses, norms, end = ours.train_amp(
        model, batches, optimizer, device, every, limit, scaler.state_dict()
    )
    return losses, norms, {"scale": end["scale"], "_growth_tracker": end["_growth_tracker"]}


# %% right train-amp: gradients set to zeros, the norm kept as a tensor, a dict of state
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    scaler = torch.amp.GradScaler(device=device, init_scale=2.0**16)
    if state:
        scaler.load_state_dict(state["scaler"])
    losses, norms = [], []
    params = [p for group in optimizer.param_groups for p in group["params"]]
    while batches:
        group, batches = batches[:every], batches[every:]
        optimizer.zero_grad(set_to_none=False)
        parts = []
        for x, y in group:
            with torch.amp.autocast(device, dtype=torch.float16):
                part = model.loss(model(x), y).div(len(group))
            parts.append(part.detach())
            scaler.scale(part).backward()
        losses.append(torch.stack(parts).sum())
        scaler.unscale_(optimizer)
        norms.append(torch.nn.utils.clip_grad_norm_(params, max_norm=limit))
        scaler.step(optimizer)
        scaler.update()
    return [loss.item() for loss in losses], torch.stack(norms), {"scaler": scaler.state_dict()}


# %% right train-amp: the loss outside of autocast, from float32 logits
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    scaler = torch.amp.GradScaler(device)
    scaler.load_state_dict(state or scaler.state_dict())
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        optimizer.zero_grad()
        losses.append(0.0)
        for tokens, next_tokens in group:
            with torch.autocast(device, dtype=torch.float16):
                logits = model(tokens)
            loss = model.loss(logits.float(), next_tokens) / len(group)
            scaler.scale(loss).backward()
            losses[-1] += loss.item()
        scaler.unscale_(optimizer)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        scaler.step(optimizer)
        scaler.update()
    return losses, norms, scaler.state_dict()


# %% wrong train-amp: the state is the scale alone
#    idea: resuming-needs-the-scale-alone
train_amp = changed(
    "scaler = torch.amp.GradScaler(device)\n    if state is not None:\n        scaler.load_state_dict(state)",
    "scaler = torch.amp.GradScaler(device, init_scale=state or 65536.0)",
    "scaler.state_dict()",
    "scaler.get_scale()",
)

# %% wrong train-amp: the loss outside of autocast
#    idea: loss-belongs-outside-autocast
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    scaler = torch.amp.GradScaler(device)
    if state is not None:
        scaler.load_state_dict(state)
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        optimizer.zero_grad()
        losses.append(0.0)
        for tokens, next_tokens in group:
            with torch.autocast(device, dtype=torch.float16):
                logits = model(tokens)
            loss = model.loss(logits, next_tokens) / len(group)
            scaler.scale(loss).backward()
            losses[-1] += loss.item()
        scaler.unscale_(optimizer)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        scaler.step(optimizer)
        scaler.update()
    return losses, norms, scaler.state_dict()


# %% wrong train-amp: a scaler for each step
#    says: In step 1 the gradients of the logits are 2 times those that a scale of 32768
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        one, two, state = ours.train_amp(model, group, optimizer, device, every, limit)
        losses, norms = losses + one, norms + two
    return losses, norms, state


# %% wrong train-amp: the optimizer steps without asking the scaler
#    says: overflowed
train_amp = changed("scaler.step(optimizer)", "optimizer.step()")

# %% wrong train-amp: BF16
#    says: bfloat16
train_amp = changed("dtype=torch.float16", "dtype=torch.bfloat16")

# %% wrong train-amp: autocast's own dtype
#    says: bfloat16
train_amp = changed("torch.autocast(device, dtype=torch.float16)", "torch.autocast(device)")

# %% wrong train-amp: no autocast
#    says: float32
train_amp = changed("torch.autocast(device, dtype=torch.float16)", "torch.autocast(device, enabled=False)")

# %% wrong train-amp: autocast around backward as well, the loss scaled for the log
#    idea: scaled-loss-is-the-loss
train_amp = changed("loss.item()", "scaler.scale(loss).item()")

# %% wrong train-amp: no state is returned
#    says: tuple of 2 came back
def train_amp(*arguments, **rest):
    return ours.train_amp(*arguments)[:2]


# %% wrong train-amp: the state is returned and not read
#    idea: scaler-state-is-disposable
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    return ours.train_amp(model, batches, optimizer, device, every, limit)


# %% wrong train-amp: a fixed scale
#    says: unscale_() is being called after step() in your line
train_amp = changed("scaler.update()", "pass", "GradScaler(device)", "GradScaler(device, init_scale=2.0**15)")

# %% wrong train-amp: a smaller first scale
#    says: In step 0 the gradients of the logits are 1/64 times those that a scale of 65536
#    never: No step was skipped
train_amp = changed("GradScaler(device)", "GradScaler(device, init_scale=1024.0)")

# %% wrong train-amp: a growth interval of its own
#    says: doubles its scale. Yours did not
train_amp = changed("GradScaler(device)", "GradScaler(device, growth_interval=10**6)")

# %% wrong train-amp: the limit is scaled instead of the gradients
#    idea: reported-norm-is-true
train_amp = changed(
    "scaler.unscale_(optimizer)",
    "pass",
    "clip_grad_norm_(model.parameters(), limit)",
    "clip_grad_norm_(model.parameters(), limit * scaler.get_scale())",
)

# %% wrong train-amp: clipped by value
#    says: With which gradients did step 1 update the weights
train_amp = changed(
    "norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())",
    "norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item())\n"
    "        torch.nn.utils.clip_grad_value_(model.parameters(), limit)",
)

# %% wrong train-amp: clipped after the step
#    says: With which gradients did step 1 update the weights
train_amp = changed(
    "norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())\n        scaler.step(optimizer)",
    "scaler.step(optimizer)\n        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())",
)

# %% wrong train-amp: update before step
#    says: unscale_() is being called after step()
train_amp = changed("scaler.step(optimizer)\n        scaler.update()", "scaler.update()\n        scaler.step(optimizer)")

# %% wrong train-amp: only norms of steps that were taken
#    says: 2 norms came back; 3 are wanted
def train_amp(*arguments, **rest):
    losses, norms, state = ours.train_amp(*arguments, **rest)
    return losses, [norm for norm in norms if math.isfinite(norm)], state


# %% wrong train-amp: one loss a micro-batch
#    says: 10 losses came back; 3 are wanted
train_amp = changed("        losses.append(0.0)\n", "", "losses[-1] += loss.item()", "losses.append(loss.item())")


# %% wrong train-amp: the last group divided by four, too
#    idea: every-group-has-k
#    says: In step 2 the gradients of the logits are 1/2 times
train_amp = changed("/ len(group)", "/ every")

# %% wrong train-amp: the log is divided once more
#    says: the loss of step 0 is
train_amp = changed("+= loss.item()", "+= loss.item() / len(group)")

# %% wrong train-amp: no unscale, the limit multiplied, the norm divided by hand afterwards twice
#    says: the norm of step 1 is
train_amp = changed(
    "norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())",
    "norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item() / scaler.get_scale())",
)

# %% wrong train-amp: the skipped step is asked of the loss instead of the gradients
#    says: step 0 overflowed and had to be skipped
train_amp = changed(
    "scaler.step(optimizer)",
    "if math.isfinite(losses[-1]):\n            optimizer.step()",
)

# %% wrong train-amp: a state that is ignored, and a scale halved by hand
#    says: In step 0 the gradients of the logits are 1/2 times
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    state = torch.amp.GradScaler(device, init_scale=2.0**15).state_dict()
    return ours.train_amp(model, batches, optimizer, device, every, limit, state)


# %% wrong train-amp: a scaler of one's own that never grows
#    says: Yours did not
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    scale = state or 65536.0
    losses, norms = [], []
    for first in range(0, len(batches), every):
        group = batches[first : first + every]
        model.zero_grad()
        losses.append(0.0)
        for tokens, following in group:
            with torch.autocast(device, torch.float16):
                loss = model.loss(model(tokens), following) / len(group)
            (loss * scale).backward()
            losses[-1] += loss.item()
        for parameter in model.parameters():
            parameter.grad /= scale
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        if norm.isfinite():
            optimizer.step()
        else:
            scale /= 2
        norms.append(norm.item())
    return losses, norms, scale


# %% wrong train-amp: a growth interval of 2001
#    says: so that step 10 of the second run overflows; there step 11 did
train_amp = changed("GradScaler(device)", "GradScaler(device, growth_interval=2001)")

# %% wrong train-amp: nothing comes back
#    says: NoneType came back
def train_amp(*arguments, **rest):
    ours.train_amp(*arguments, **rest)


# %% wrong train-amp: labkit's loop
#    says: uses `labkit.training.train`
def train_amp(model, batches, optimizer, device, every, limit, state=None):
    from labkit.training import train

    scaler = torch.amp.GradScaler(device)
    if state is not None:
        scaler.load_state_dict(state)
    run = train(
        model, batches, optimizer=optimizer, loss_fn=model.loss, precision="fp16", scaler=scaler,
        max_grad_norm=limit, accumulate=every, device=device, progress=False,
    )  # fmt: skip
    return [step.loss for step in run], [step.grad_norm for step in run], scaler.state_dict()
