"""labkit: what stands behind the labs.

Read the package in this order, each module in one sitting:

- ``labkit.float_formats``: a number format is data. ``labkit.formats``: ``quantize``, ``encode``,
  ``decode``, ``spacing`` for tensors.
  ``labkit.rounding`` below it rounds to whole multiples of a step.
- ``labkit.histograms``: what a format does to a tensor, as a record. ``labkit.data``: digits,
  text and recorded tensors, in seeded splits and batches; ``labkit.downloads`` below it fetches.
- ``labkit.matmul``: a product that says in which dtypes it reads, adds and stores; below it
  ``labkit.accumulators``: sums in a format of few bits.
- ``labkit.emulation``: ``emulate_gpu()``, under which a CPU computes as a Tensor Core GPU does.
  Below it ``labkit.autocast_lists`` (which operator in which dtype), ``labkit.tensor_core`` (what
  each rounds), ``labkit.flash_attention``.
- ``labkit.models``: the networks that the labs train.
- ``labkit.scaling``: loss scaling as a state machine; ``labkit.loss_scaler`` applies it.
- ``labkit.training``: one loop for every precision; ``labkit.precision`` below it says what each
  one is. ``labkit.recordings``: such runs, recorded on real GPUs.
- ``labkit.suspects``: the five runs of lab 01, and the evidence that a run leaves.
- ``labkit.nan_detective``: a run that fails, eight instruments, four queries. Below it
  ``labkit.broken_runs`` (the run), ``labkit.causes`` (what each cause can show) and
  ``labkit.instruments`` (what is measured).
- ``labkit.dtype_map``: the dtype of every value of one training step. ``labkit.call_order``: which
  AMP calls a loop makes, in which order, and what an order breaks.
- ``labkit.plots``, ``labkit.widgets``: pictures of those records.
- ``labkit.checks``: run an answer, judge what came back, name the mistake.
  ``labkit.misconceptions``: the wrong ideas that have a name.
- ``labkit.progress``: the learner's log, one SQLite file.
- ``labkit.questions``: the bank of interview questions. Below it ``labkit.question_kinds`` (a class
  a kind), ``labkit.cards`` (a question with its numbers drawn), ``labkit.expressions`` (numbers as
  people write them) and ``labkit.exact`` (formats in fractions); ``labkit.answers`` judges.
- ``labkit.drills``: what is due, and how ready one is. ``labkit.mock``: the mock interview.
  ``labkit.plans``: what to do by Friday, or over weeks. ``labkit.sittings`` holds a drill or a
  mock, with ``labkit.interview`` for the log; ``labkit.terminal`` and a widget show it in the words
  of ``labkit.wording``, ``labkit.preparing`` draws where one stands, ``labkit.anki`` exports it.
- ``labkit.my_labs``: the learner's own copies of the labs.
- ``labkit.hardware``: what each device does with a dtype, which precision to use, how fast it is.
- ``labkit.doctor``: will the course run on this machine?
- ``labkit.grading``: a class's notebooks, run in a sandbox and judged outside of it.
- ``labkit.build``: from a source file to a learner notebook and a solved one.
  ``labkit.lab_source``: what a source file says. ``labkit.paths``: where all of it lies.

``python -m labkit`` lists the commands. Importing this package imports nothing else.
"""
