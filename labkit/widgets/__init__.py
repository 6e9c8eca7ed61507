"""What the course draws in a notebook beyond matplotlib's figures.

- ``labkit.widgets.described``: what every widget can do: say what it shows, and answer its page.
- ``labkit.widgets.format_explorer``: the bits, the neighbours and the roundings of one number.
  Read ``exact_numbers``, ``look`` and ``format_picture`` first: all that it shows is made there.
- ``labkit.widgets.reach_the_sum``: add 1 until a 16-bit sum sticks.
- ``labkit.widgets.dtype_map``: paint the values of a training step, then run it.
- ``labkit.widgets.call_order``: the calls of one AMP step, to be put in order.
- ``labkit.widgets.nan_detective``: the file of a run that fails; ``nan_pictures`` draws it.
- ``labkit.widgets.progress_panel``: how far each lab is.
"""
