"""Look at a cluster from a program: topics, brokers, groups, transactions as frozen values with units.

The console (``splashdam console``) and ``splashdam top`` show these values. `open_inspector` asks any cluster
by the Kafka protocol, under trio.
"""

from __future__ import annotations

from splashdam.model.views.cluster import (
    AnsweredError,
    BrokerView,
    ClientView,
    DiskView,
    GroupPartitionView,
    GroupView,
    HeldBackView,
    MemberView,
    Overview,
    PartitionView,
    RebalanceView,
    SettingView,
    TopicView,
    TransactionView,
)
from splashdam.net.inspector import Inside, Inspector, open_inspector

__all__ = [
    "AnsweredError",
    "BrokerView",
    "ClientView",
    "DiskView",
    "GroupPartitionView",
    "GroupView",
    "HeldBackView",
    "Inside",
    "Inspector",
    "MemberView",
    "Overview",
    "PartitionView",
    "RebalanceView",
    "SettingView",
    "TopicView",
    "TransactionView",
    "open_inspector",
]
