"""The grader: students' code in a sandbox, the judge outside of it.

``records`` says what is graded and what comes back; ``runner.Grader`` does it. In reading order:
``records``, ``frames``, ``sandbox`` and ``watching``; then what runs inside, ``standin``,
``cells``, ``confine`` and ``server``; then what runs outside, ``shipping``, ``judge``, ``worker``
and ``runner``. ``batch`` names the modules between what a class hands in and the runner, and
``nbgrader_course`` writes what an instructor hands out.
"""
