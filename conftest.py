"""Tests and the kernels they start write no progress; a learner's own copies are no tests."""

import os

# Set while pytest starts and not in a fixture: kernels inherit the environment of this process.
os.environ["LABKIT_PROGRESS"] = "off"

collect_ignore_glob = ["notebooks/my_labs*", "my_labs*"]
