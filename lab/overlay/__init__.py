"""The overlay on virtual time: whole rings, churn, and what must hold of them."""
