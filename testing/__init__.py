"""For users' tests and ours: clocks in virtual time, faulty networks and files, a broker as a fixture.

Lives here: whatever a test suite needs that an application does not; ``faults/`` (what a broker does wrong on
demand), the pytest plugin, the ``simulator/``, and the ``contract/`` that clusters are held against.
May import: anything.
"""
