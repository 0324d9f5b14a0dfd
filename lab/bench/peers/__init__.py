"""``elf bench peers``: other engines on the same job as elf, and all their answers compared."""
