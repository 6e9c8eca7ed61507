"""A small ResNet, whose batch norm lab 13 watches in 16 bits."""

import torch
from torch import Tensor, nn

from labkit.training.models import check_images


class ResidualBlock(nn.Module):
    """Adds to its input what two convolutions with batch norm make of it.

    Takes N x channels x H x W and gives N x out x H/stride x W/stride, rounded up.
    """

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out),
        )
        # The sum needs equal shapes; a 1 x 1 convolution brings the input to them.
        same = channels == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.body(x))


class SmallResNet(nn.Module):
    """Three residual blocks of 16, 32 and 64 channels with batch norm, averaged over the image.

    Takes N x channels x H x W with H and W of at least 4 and gives logits, N x classes.

    Raises:
        ValueError: the images have another number of channels.
    """

    def __init__(self, channels: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.channels = channels
        self.stem = nn.Conv2d(channels, 16, kernel_size=3, padding=1)
        self.blocks = nn.Sequential(
            ResidualBlock(16, 16), ResidualBlock(16, 32, stride=2), ResidualBlock(32, 64, stride=2)
        )
        self.classifier = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        expected = ("N", self.channels, "H", "W")
        check_images(images, expected, "Build SmallResNet(channels=...) for your images.")
        return self.classifier(self.blocks(self.stem(images)).mean(dim=(2, 3)))
