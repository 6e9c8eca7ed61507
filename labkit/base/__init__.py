"""What everything stands on: paths, files, templates, the manifest, misconceptions, the log."""
