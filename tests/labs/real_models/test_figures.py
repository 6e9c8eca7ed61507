"""The figures of lab 13 show the records that they are given, and say the same in words."""

import torch

from labkit.labs.real_models.attention import CrashRun
from labkit.labs.real_models.figures import crash_picture, pictures_picture, ring_picture
from labkit.labs.real_models.gan import ring_points

LIVED = CrashRun(losses=(4.0,) * 90 + (2.0,) * 10, largest_score=5.6, died=None)
DIED = CrashRun(losses=(4.0, 3.0, 3.5), largest_score=9e4, died=3)


def test_pictures_share_a_gray_scale_and_say_their_spread():
    ramp = torch.linspace(0, 1, 576).view(24, 24)
    picture = pictures_picture({"FP32": ramp, "BF16 autocast": torch.full((24, 24), 0.3)})
    shown = [axes.images[0] for axes in picture.figure.axes]
    assert [image.get_clim() for image in shown] == [(0, 1)] * 2
    assert (torch.from_numpy(shown[0].get_array().data) == ramp).all()
    assert f"FP32: standard deviation {ramp.std():.2g}; BF16 autocast: standard deviation 0." in (
        picture.alt
    )


def test_a_run_that_died_has_a_cross_at_its_last_loss():
    picture = crash_picture({"FP16": DIED, "FP16, QK-norm": LIVED})
    (axes,) = picture.figure.axes
    died, cross, lived = axes.lines
    assert list(died.get_ydata()) == [4.0, 3.0, 3.5]
    assert (cross.get_marker(), cross.get_xdata(), cross.get_ydata()) == ("x", [2], [3.5])
    assert cross.get_color() == died.get_color() != lived.get_color()
    assert "FP16: inf or NaN at step 3; FP16, QK-norm: loss 2.00 after 100 steps." in picture.alt


def test_a_ring_counts_the_blobs_that_its_samples_find():
    data = ring_points(400, torch.Generator().manual_seed(0))
    few = data[data[:, 0] > 1.0]  # three blobs: at 0 and at 45 degrees on both sides
    picture = ring_picture({"FP32": data, "BF16 average": few}, data)
    assert "FP32: 8 of 8 blobs; BF16 average: 3 of 8 blobs." in picture.alt
    left, right = picture.figure.axes
    assert [len(each.get_offsets()) for each in right.collections] == [400, len(few)]
    assert left.get_xlim() == right.get_xlim()
