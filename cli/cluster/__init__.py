"""Commands for any cluster: a module for each kind of thing that it has, the contract, and the benchmark.

May import: commands, connecting, exiting, measuring, output, parameters.
"""
