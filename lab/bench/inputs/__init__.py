"""``elf bench inputs``: real senders send, and their agent is killed: what is lost, and what is there
twice?"""
