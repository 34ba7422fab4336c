"""``make endurance``: minutes of sending while the broker is killed, stopped and restarted.

Then the log is compared with what applications were told.

The broker is ``splashdam broker`` in a process of its own (``broker.py``); the producers share another one
(``producers.py``, ``streams.py``, ``streams_in_loops.py``), so that their memory can be watched; what they
were told goes to files (``records.py``). An independent consumer reads everything back (``checking.py``).
"""
