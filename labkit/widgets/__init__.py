"""The course's widgets: one Python class, one plain ES module and one style sheet each.

- ``labkit.widgets.format_explorer``: the bits, the neighbours and the roundings of one value.
"""
