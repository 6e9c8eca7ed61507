"""From a submission to verdicts: what is shipped into the sandbox, and who judges what returns."""
