"""The grader: students' code in a sandbox, the judge outside of it.

``records`` says what is graded and what comes back; ``runner.Grader`` does it. In reading order,
inside the sandbox: ``frames``, ``standin``, ``cells``, ``confine``, ``server``; around it:
``sandbox``, ``watching``, ``metering``; outside: ``shipping``, ``judge``, ``snapshot``, ``worker``,
``runner``. ``batch`` names the modules between what a class hands in and the runner, and
``nbgrader_course`` writes what an instructor hands out.
"""
