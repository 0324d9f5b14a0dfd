"""The laboratory: benches, simulators, whole fleets through chaos, generators. It may import anything;
nothing imports it but the command line, which loads it when one of its commands is run.
"""
