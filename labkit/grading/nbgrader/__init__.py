"""The course for stock nbgrader: export, settings, its steps, its gradebook."""
