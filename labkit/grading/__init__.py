"""The grader: students' code in a sandbox, the judge outside of it.

``records`` says what is graded and what comes back, ``course_labs`` what a lab asks. ``command`` is
``labkit grade``: ``intake`` reads what is handed in, ``judge`` grades it, ``report`` writes points,
tables and pages. In ``judge`` read ``shipping``, ``judging``, ``snapshot``, ``worker``, ``runner``,
then ``batch``. In ``sandbox`` the inner half is ``frames``, ``standin``, ``cells``, ``confine`` and
``server``, around it ``bubblewrap``, ``groups``, ``watching`` and ``metering``. ``nbgrader`` writes
the course for stock nbgrader.
"""
