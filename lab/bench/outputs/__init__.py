"""``elf bench outputs``: real agents whose windows go to a real PostgreSQL while their masters are killed."""
