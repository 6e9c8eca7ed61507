"""What everything stands on: paths, files, misconceptions and the progress log."""
