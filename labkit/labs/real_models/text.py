"""A BERT-style classifier with its tokenizer: which of three plays does a speech come from?

Texts have different lengths, so a batch is padded, and a mask says which tokens are real.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

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

Labelled = list[tuple[str, int]]
"""Texts, each with its label, a place in PLAYS."""


def speeches(seed: int = 0) -> tuple[Labelled, Labelled]:
    """Speeches to learn from and to be tested on: a fifth, drawn by ``seed``.

    They have three words or more, 32 are kept, and the speakers' names are left out.
    """
    # ``shakespeare()`` has the plays in a row, each from its Act I on.
    plays = re.split(r"(?m)^(?=ACT I\.$)", shakespeare())[1:]
    found = []
    for label, play in enumerate(plays):
        for paragraph in play.split("\n\n"):
            speaker, _, lines = paragraph.strip().partition("\n")
            words = _words(lines)
            spoken = re.fullmatch(r"(?!ACT|SCENE)[A-Z ]+\.", speaker) is not None
            if spoken and len(words) >= 3:
                found.append((" ".join(words[:LONGEST]), label))
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed)).tolist()
    cut = len(found) // 5
    return [found[i] for i in order[cut:]], [found[i] for i in order[:cut]]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


@dataclass(frozen=True)
class WordTokenizer:
    """Words as tokens: 0 is padding, 1 a word it does not know, 2 the start; words are 3 and more.

    >>> WordTokenizer(("the", "noble")).encode("The noble Brutus")
    [2, 3, 4, 1]
    """

    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Labelled, words: int = 1500) -> "WordTokenizer":
        """The most frequent words of these texts."""
        counted = Counter(word for text, _ in texts for word in _words(text))
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


def collate(texts: Labelled, tokenizer: WordTokenizer, context: int = LONGEST + 1) -> dict:
    """A batch of texts as ``train`` takes it, padded to the longest; ``context`` tokens are kept.

    Returns:
        "tokens", int64, N x T, with PAD behind the end of a text; "mask", bool, N x T, True where
        a token is real; "labels", int64, N.
    """
    kept = [torch.tensor(tokenizer.encode(text)[:context]) for text, _ in texts]
    tokens = nn.utils.rnn.pad_sequence(kept, batch_first=True, padding_value=PAD)
    labels = torch.tensor([label for _, label in texts])
    return {"tokens": tokens, "mask": tokens != PAD, "labels": labels}


def first_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """What stands at START, N x width, as BERT reads its classes: N x T x width and the mask."""
    return hidden[:, 0]


class EncoderBlock(Block):
    """A transformer block in which each position attends to all real tokens.

    Takes N x T x width and the mask, N x T, and gives N x T x width.
    """

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        # A row without a real token has no softmax: let its positions see one another. The mask is
        # bool: -1e9, which many model files add to scores, is -inf in FP16.
        mask = mask | ~mask.any(dim=1, keepdim=True)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = x + self.attention_out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.feed_forward_norm(x))


class TextClassifier(nn.Module):
    """A small BERT with a linear head.

    Takes tokens, int64, N x T with T at most ``context``, and a mask, bool, N x T, by default True
    where the token is not PAD. Gives logits, N x classes. A row of padding alone gives finite ones.

    Args:
        pool: (hidden, mask) -> N x width, what the head reads; ``first_token`` as in BERT.

    Raises:
        ValueError: tokens or mask have another shape or dtype.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int = LONGEST + 1,
        *,
        pool: Callable[[Tensor, Tensor], Tensor] = first_token,
    ) -> None:
        super().__init__()
        self.context, self.pool = context, pool
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(context, WIDTH)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.02)
        self.blocks = nn.ModuleList([EncoderBlock(WIDTH, heads=4) for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(PLAYS))

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """What the pooling reads, N x T x width, in the dtype of the last layer norm."""
        if tokens.ndim != 2 or tokens.shape[1] > self.context:
            raise ValueError(
                f"expected tokens of shape N x T with T up to {self.context}, "
                f"got {' x '.join(map(str, tokens.shape))}. collate() cuts them"
            )
        if mask.dtype is not torch.bool or mask.shape != tokens.shape:
            raise ValueError(
                f"expected a mask of torch.bool and shape {tuple(tokens.shape)}, "
                f"got {mask.dtype} and {tuple(mask.shape)}"
            )
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = tokens != PAD if mask is None else mask
        return self.head(self.pool(self.hidden(tokens, mask), mask))


@dataclass(frozen=True, eq=False)
class TrainedClassifier:
    """A classifier of speeches after its training.

    Args:
        model: in eval mode. tokenizer: of its training texts. test: the test texts as one batch.
        losses: one a step. accuracy: on the test texts, in the precision of the training.
    """

    model: TextClassifier
    tokenizer: WordTokenizer
    test: dict[str, Tensor]
    losses: tuple[float, ...]
    accuracy: float


def trained_classifier(
    seed: int = 0,
    *,
    precision: str = "fp32",
    pool: Callable[[Tensor, Tensor], Tensor] = first_token,
) -> TrainedClassifier:
    """Train a TextClassifier on ``speeches(seed)``: two epochs of 62 steps of 32, AdamW at 1e-3."""
    texts, test_texts = speeches(seed)
    tokenizer = WordTokenizer.of(texts)
    torch.manual_seed(seed)
    model = TextClassifier(tokenizer.size, pool=pool)
    run = train(
        model,
        DataLoader(
            texts, 32, shuffle=True, collate_fn=partial(collate, tokenizer=tokenizer),
            generator=torch.Generator().manual_seed(seed),
        ),
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        precision=precision,
        epochs=2,
        max_grad_norm=1.0,
        progress=False,
    )  # fmt: skip
    test = collate(test_texts, tokenizer)
    accuracy = evaluate(model, test["tokens"], test["labels"], precision=precision)
    losses = tuple(record.loss for record in run)
    return TrainedClassifier(model.eval(), tokenizer, test, losses, accuracy)
