"""A BERT-style classifier with its tokenizer: which of three plays does a speech come from?

Texts have different lengths, so a batch is padded, and a mask says which tokens are real. The mask
stays bool and is applied to float32 scores: -1e9, which many model files add, is -inf in FP16.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from labkit.training import evaluate, train
from labkit.training.data import shakespeare
from labkit.training.models import Block

PLAYS = ("Julius Caesar", "Macbeth", "Othello")
PAD, UNKNOWN, START = 0, 1, 2
LONGEST = 32
"""The words of a speech that are kept."""
WIDTH = 64


@dataclass(frozen=True)
class SpeechSplit:
    """Speeches to learn from and to be tested on; a label is a place in PLAYS, int64."""

    train_texts: tuple[str, ...]
    train_labels: Tensor
    test_texts: tuple[str, ...]
    test_labels: Tensor


def speeches(seed: int = 0) -> SpeechSplit:
    """The speeches of three words and more, without the speakers' names, 32 words of each at most.

    A fifth, drawn by ``seed``, is for testing.
    """
    found = [
        (speech, label)
        for label, play in enumerate(_plays())
        for paragraph in play.split("\n\n")
        if (speech := _speech(paragraph))
    ]
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed)).tolist()
    cut = len(found) // 5
    test, training = ([found[i] for i in places] for places in (order[:cut], order[cut:]))
    return SpeechSplit(*_columns(training), *_columns(test))


def _plays() -> list[str]:
    """The text of each play; ``shakespeare()`` has them in a row, each from its Act I on."""
    return re.split(r"(?m)^(?=ACT I\.$)", shakespeare())[1:]


def _speech(paragraph: str) -> str:
    """The words of a paragraph whose first line is a speaker, or "" where there is no speech."""
    speaker, _, lines = paragraph.strip().partition("\n")
    if not re.fullmatch(r"[A-Z ]+\.", speaker) or speaker.startswith(("ACT", "SCENE")):
        return ""
    words = _words(lines)
    return " ".join(words[:LONGEST]) if len(words) >= 3 else ""


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def _columns(rows: list[tuple[str, int]]) -> tuple[tuple[str, ...], Tensor]:
    return tuple(text for text, _ in rows), torch.tensor([label for _, label in rows])


@dataclass(frozen=True)
class WordTokenizer:
    """Words as tokens: 0 is padding, 1 a word it does not know, 2 the start; words are 3 and more.

    >>> WordTokenizer(("the", "noble")).encode("The noble Brutus")
    [2, 3, 4, 1]
    """

    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Sequence[str], words: int = 1500) -> "WordTokenizer":
        """The most frequent words of these texts."""
        counted = Counter(word for text in texts for word in _words(text))
        return cls(tuple(word for word, _ in counted.most_common(words)))

    @property
    def size(self) -> int:
        return len(self.words) + 3

    @cached_property
    def _token(self) -> dict[str, int]:
        return {word: token for token, word in enumerate(self.words, 3)}

    def encode(self, text: str) -> list[int]:
        """START and a token for each word; an empty text is START alone."""
        return [START, *(self._token.get(word, UNKNOWN) for word in _words(text))]


@dataclass(frozen=True)
class PaddedBatch:
    """Texts of different lengths in one tensor.

    Args:
        tokens: int64, N x T, PAD behind the end of a text.
        mask: bool, N x T; True where a token is real.
        labels: int64, N.
        cut: how many tokens were left out of texts that were longer than the context.
    """

    tokens: Tensor
    mask: Tensor
    labels: Tensor
    cut: int

    def named(self) -> dict[str, Tensor]:
        """The batch as ``train`` takes it: by the names of the model's arguments, and "labels"."""
        return {"tokens": self.tokens, "mask": self.mask, "labels": self.labels}


def collate(
    texts: Sequence[str],
    labels: Tensor,
    tokenizer: WordTokenizer,
    *,
    context: int = LONGEST + 1,
) -> PaddedBatch:
    """Pad the texts to the longest of them, of which at most ``context`` tokens are kept.

    Raises:
        ValueError: no text; another number of labels; a label that is none of a play.
    """
    if not texts or len(texts) != len(labels):
        raise ValueError(f"{len(texts)} texts and {len(labels)} labels: pass one label a text")
    wrong = labels[(labels < 0) | (labels >= len(PLAYS))].tolist()
    if wrong:
        raise ValueError(f"label {wrong[0]} is not one of 0 to {len(PLAYS) - 1}")
    whole = [torch.tensor(tokenizer.encode(text)) for text in texts]
    kept = [tokens[:context] for tokens in whole]
    tokens = nn.utils.rnn.pad_sequence(kept, batch_first=True, padding_value=PAD)
    cut = sum(map(len, whole)) - sum(map(len, kept))
    return PaddedBatch(tokens, tokens != PAD, labels, cut)


def speech_batches(
    texts: Sequence[str],
    labels: Tensor,
    tokenizer: WordTokenizer,
    batch_size: int = 32,
    *,
    seed: int = 0,
) -> DataLoader:
    """Padded batches for ``train``, each text once an epoch, in another order each epoch."""

    def padded(rows: list[tuple[str, Tensor]]) -> dict[str, Tensor]:
        these, their_labels = zip(*rows, strict=True)
        return collate(these, torch.stack(their_labels), tokenizer).named()

    return DataLoader(
        list(zip(texts, labels, strict=True)), batch_size, shuffle=True, collate_fn=padded,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def first_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """What stands at START, N x width, as BERT reads its classes: N x T x width and the mask."""
    return hidden[:, 0]


def eager_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention over real tokens, written out; N x heads x T x width, the mask N x T.

    The mask's number is the least of the scores' own dtype. With -inf a row without a real token
    would be 0 / 0; with the least number it is the mean of all values.
    """
    # Divided before the matmul, whose 16-bit result is the first that can overflow.
    scores = (q / math.sqrt(q.shape[-1]) @ k.mT).float()
    scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).to(v.dtype) @ v


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """The same in one kernel of torch, which takes the mask as bool."""
    # A row without a real token has no softmax: let its positions see one another.
    mask = mask | ~mask.any(dim=1, keepdim=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])


class EncoderBlock(Block):
    """A transformer block in which each position attends to all real tokens.

    Takes N x T x width and the mask, N x T, and gives N x T x width.
    """

    def __init__(self, width: int, heads: int, attend: Callable[..., Tensor]) -> None:
        super().__init__(width, heads)
        self.attend = attend

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = self.attend(q, k, v, mask)
        x = x + self.attention_out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.feed_forward_norm(x))


class TextClassifier(nn.Module):
    """A small BERT with a linear head.

    Takes tokens, int64, N x T with T at most ``context``, and a mask, bool, N x T, by default True
    where the token is not PAD. Gives logits, N x classes. A row of padding alone gives finite ones.

    Args:
        attend: ``fused_attention`` or ``eager_attention``.
        pool: (hidden, mask) -> N x width, what the head reads; ``first_token`` as in BERT.

    Raises:
        ValueError: the heads do not divide the width; tokens or mask have another shape or dtype.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int = LONGEST + 1,
        heads: int = 4,
        *,
        attend: Callable[..., Tensor] = fused_attention,
        pool: Callable[[Tensor, Tensor], Tensor] = first_token,
    ) -> None:
        super().__init__()
        if WIDTH % heads:
            raise ValueError(f"{heads} heads cannot share a width of {WIDTH}; take a divisor of it")
        self.context, self.pool = context, pool
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(context, WIDTH)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.02)
        self.blocks = nn.ModuleList([EncoderBlock(WIDTH, heads, attend) for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(PLAYS))

    def hidden(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the pooling reads, N x T x width, in the dtype of the last layer norm."""
        mask = self._mask(tokens, mask)
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.head(self.pool(self.hidden(tokens, mask), self._mask(tokens, mask)))

    def _mask(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        if tokens.ndim != 2 or tokens.shape[1] > self.context:
            raise ValueError(
                f"expected tokens of shape N x T with T up to {self.context}, "
                f"got {' x '.join(map(str, tokens.shape))}. collate() cuts them"
            )
        mask = tokens != PAD if mask is None else mask
        if mask.dtype is not torch.bool or mask.shape != tokens.shape:
            raise ValueError(
                f"expected a mask of torch.bool and shape {tuple(tokens.shape)}, "
                f"got {mask.dtype} and {tuple(mask.shape)}"
            )
        return mask


@dataclass(frozen=True, eq=False)
class TrainedClassifier:
    """A classifier of speeches after its training.

    Args:
        model: in eval mode. tokenizer: of its training texts. test: the test texts as one batch.
        losses: one a step. accuracy: on the test texts, in the precision of the training.
    """

    model: TextClassifier
    tokenizer: WordTokenizer
    test: PaddedBatch
    losses: tuple[float, ...]
    accuracy: float


def trained_classifier(
    seed: int = 0,
    *,
    precision: str = "fp32",
    pool: Callable[[Tensor, Tensor], Tensor] = first_token,
) -> TrainedClassifier:
    """Train a TextClassifier on ``speeches(seed)``: two epochs of 62 steps of 32, AdamW at 1e-3."""
    split = speeches(seed)
    tokenizer = WordTokenizer.of(split.train_texts)
    torch.manual_seed(seed)
    model = TextClassifier(tokenizer.size, pool=pool)
    run = train(
        model,
        speech_batches(split.train_texts, split.train_labels, tokenizer, seed=seed),
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        precision=precision,
        epochs=2,
        max_grad_norm=1.0,
        progress=False,
    )
    test = collate(split.test_texts, split.test_labels, tokenizer)
    accuracy = evaluate(model, test.tokens, test.labels, precision=precision)
    losses = tuple(record.loss for record in run)
    return TrainedClassifier(model.eval(), tokenizer, test, losses, accuracy)
