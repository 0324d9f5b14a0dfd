"""What an agent keeps: its SQLite file by table, what is synced when, and whether there is room."""
