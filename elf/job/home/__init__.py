"""A job where it lives: its master and versions, its windows, who reads them, who keeps it."""
