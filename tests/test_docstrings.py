"""Every example in a docstring of labkit gives what it says."""

import doctest
import importlib
import pkgutil

import pytest

import labkit

MODULES = [
    module.name
    for module in pkgutil.walk_packages(labkit.__path__, "labkit.")
    if "_shipped" not in module.name and not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_are_found():
    found = doctest.DocTestFinder().find(importlib.import_module("labkit.formats.tensors"))
    assert sum(len(each.examples) for each in found) > 3
