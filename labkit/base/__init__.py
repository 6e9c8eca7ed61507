"""The bottom layer, which imports nothing else of labkit but its paths: files and the manifest."""
