"""labkit, the package behind the labs. Importing it imports ``old_copies`` only.

What a learner imports, each package resting on those above it:

- ``labkit.formats``: a number format is data; quantize, encode, range reports, sums, matmuls.
- ``labkit.devices``: what each device does with a dtype, and which precision to use on it.
- ``labkit.emulation``: ``emulate_gpu()``, under which a CPU follows a GPU's precision rules.
- ``labkit.training``: one visible loop for every precision, the loss scaler, models, data.
- ``labkit.measuring``: speed, accuracy, memory, and recordings of other machines.
- ``labkit.plots``: figures of those records.

What runs the course: ``base`` (files, progress), ``labs`` (a folder a lab, and the engine of
checks), ``interview``, ``course`` (notebooks, learners' copies), ``grading``. ``python -m labkit``
lists the commands.
"""

from labkit import old_copies

old_copies.install()
