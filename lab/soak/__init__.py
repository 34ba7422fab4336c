"""A long run on small disks, which must be flat: ``make soak``.

``cluster_process`` runs three embedded brokers in a process of their own, ``workloads`` are the threads that
use them and check what they read, ``flatness`` samples memory, descriptors, files and disk, and judges.
"""
