"""Tests that drive a real JupyterLab in Chromium."""
