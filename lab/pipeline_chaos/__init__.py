"""``make pipeline-chaos``: ingests into tables of all formats are killed while a producer keeps sending.

The ingests share a driver, a process of its own (``driver.py``), which is watched, killed and started again
(``driving.py``); another thread sends (``sending.py``). Then each table is compared with the log
(``checking.py``).
"""
