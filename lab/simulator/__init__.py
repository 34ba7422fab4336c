"""Producers and brokers in one run in virtual time, with everything that can go wrong drawn from one seed.

``python -m lab.simulator`` runs seeds; docs/decisions/simulator.md says what is proven when.
"""
