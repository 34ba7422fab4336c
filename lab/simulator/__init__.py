"""Runs producers and brokers in virtual time, with faults that are drawn from a seed.

``python -m lab.simulator`` runs seeds; docs/decisions/simulator.md says which promises it checks, and when.
"""
