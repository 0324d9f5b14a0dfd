"""Results on their way out of the fleet: how the master's agent performs ``Deliver``.

    store ─▶ delivering: reads results after a number ─▶ parcels ─▶ a target ─▶ Delivered
                                                                     ├ delta      a commit a result
                                                                     ├ files      a file a window
                                                                     ├ kafka      a message a window
                                                                     ├ otlp       a request a window
                                                                     ├ postgres   a table, by window
                                                                     ├ prometheus gauges of the newest window
                                                                     └ webhook    a request a window

A delivery may come twice, and two masters may be at it at once, of which the older one does not know yet that
it is none. So each target replaces what it has of a window, and keeps what is newer (``Parcel.rank``). What
leaves this host, and whereto, its own configuration says (``outputs.allow``), and nobody else; passwords and
keys are files of the host.
"""
