"""What the tests share: worlds, fleets, oracles, and helpers. No test imports another test."""
