"""Lab 06: hardware and benchmarks; checks, DeviceCard and Roofline."""
