"""``elf bench within``: do jobs keep what they promise (WITHIN), on real agents?"""
