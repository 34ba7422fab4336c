"""A long run on small disks; memory, descriptors, files and disk must not grow: ``make soak``.

``cluster_process`` runs three embedded brokers in a process of their own, ``workloads`` are the threads that
use them and check the records that they read, ``flatness`` samples what must not grow, and judges it.
"""
