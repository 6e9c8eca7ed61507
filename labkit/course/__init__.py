"""The course as files: building notebooks, learners' copies, progress, the doctor."""
