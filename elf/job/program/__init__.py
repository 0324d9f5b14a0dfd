"""Jobs in Python: the class that people write, what runs it, and how it meets the node."""
