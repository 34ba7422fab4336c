"""Logs over any files, workloads and damage."""
