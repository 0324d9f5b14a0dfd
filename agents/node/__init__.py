"""The node of an agent, pure: ring, stream log, homes and clients; events in, effects out."""
