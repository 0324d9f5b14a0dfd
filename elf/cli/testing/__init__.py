"""``elf test``: given lines, expected windows, by the engine of ``elf run``.

A file of tests is YAML. ``cases`` reads it and says what is wrong in it, with the line; ``running`` has one
case answered; ``judging`` compares what came with what is expected, and shows each difference; ``report``
tells a person, a program or a CI server.

A line that is rejected, or too late for every window, is a difference unless the test expects it: a test that
passes has accounted for all of its lines.
"""
