"""Lab 04: master weights and loss scaling; checks, GradientWindow and ScaleTimeline."""
