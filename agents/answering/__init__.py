"""What people ask an agent, and what it answers: statements, plans, explanations, readers."""
