"""What everything stands on: paths, files, pages, pictures, manifest, misconceptions, the log."""
