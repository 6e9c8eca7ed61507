"""The simulated device: launching is quick, work takes its time, only synchronising waits."""

import pytest

from labkit.devices import AsyncDevice


def test_launches_return_at_once_and_work_queues():
    device = AsyncDevice(launch_seconds=1.0)
    for _ in range(3):
        device.launch("matmul", seconds=10.0)
    assert device.clock() == 3.0
    device.synchronize()
    assert device.clock() == 31.0  # the first began when its launch was done
    device.synchronize()
    assert device.clock() == 31.0


def test_short_work_is_hidden_behind_launches():
    device = AsyncDevice(launch_seconds=5.0)
    for _ in range(4):
        device.launch("add", seconds=1.0)
    device.synchronize()
    assert device.clock() == 21.0


def test_each_kernel_warms_up_once():
    device = AsyncDevice(launch_seconds=0.0, warm_up_seconds=100.0)
    times = []
    for kernel in ("a", "a", "b"):
        before = device.clock()
        device.launch(kernel, seconds=1.0)
        device.synchronize()
        times.append(device.clock() - before)
    assert times == [101.0, 1.0, 101.0]


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_times_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="launch_seconds"):
        AsyncDevice(launch_seconds=wrong)
    with pytest.raises(ValueError, match=r"^seconds="):
        AsyncDevice().launch("matmul", seconds=wrong)
