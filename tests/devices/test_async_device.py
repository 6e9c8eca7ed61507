"""The simulated device: launching is quick, work takes its time, only synchronising waits."""

import pytest

from labkit.devices import AsyncDevice, BlockingDevice


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


def test_events_see_the_device_s_time_whatever_was_queued_before():
    device = AsyncDevice(launch_seconds=1.0)
    device.launch("before", seconds=50.0)
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    start.record()  # behind "before", which ends at 51
    device.launch("matmul", seconds=10.0)
    end.record()
    assert not end.query()
    end.synchronize()
    assert (device.clock(), start.elapsed_time(end)) == (61.0, 10_000.0)
    assert end.elapsed_time(start) == -10_000.0


def test_an_idle_device_waits_for_the_launch_between_two_events():
    device = AsyncDevice(launch_seconds=1.0)
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    start.record()
    device.launch("matmul", seconds=10.0)
    end.record()
    device.synchronize()
    assert start.elapsed_time(end) == 11_000.0


def test_events_refuse_what_torch_s_refuse():
    device = AsyncDevice()
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    start.record()
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    device.launch("matmul", seconds=1.0)
    end.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        start.elapsed_time(end)
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(device.Event())


def test_the_trace_says_when_each_kernel_was_launched_and_ran():
    device = AsyncDevice(launch_seconds=5.0, warm_up_seconds=2.0)
    device.launch("add", seconds=1.0)
    device.launch("add", seconds=1.0)
    first, second = device.trace
    assert (first.called, first.queued, first.start, first.end) == (0.0, 5.0, 5.0, 8.0)
    assert (second.called, second.queued, second.start, second.end) == (5.0, 10.0, 10.0, 11.0)


def test_the_cpu_answers_as_torch_cuda_does(monkeypatch):
    now = iter([1.0, 3.5, 4.0, 4.0])
    monkeypatch.setattr("labkit.devices.async_device.time.perf_counter", lambda: next(now))
    device = BlockingDevice()
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    start.record()
    end.record()
    device.synchronize()
    assert start.elapsed_time(end) == 2500.0


def test_the_program_s_own_work_overlaps_with_kernels_until_it_waits():
    device = AsyncDevice(launch_seconds=1.0)
    device.launch("matmul", seconds=10.0)
    device.work(4.0)
    assert device.clock() == 5.0
    device.synchronize()
    device.work(4.0)
    assert device.clock() == 15.0  # 11 seconds of launch and kernel, then 4 with an idle device
    with pytest.raises(ValueError, match=r"^seconds="):
        device.work(-1.0)
