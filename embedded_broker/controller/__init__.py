"""Several brokers as one cluster: who is in it, who leads what, and how that changes.

``state`` has the values, and ``ClusterChange``, in which whatever happens is written down. ``election``,
``reassignment`` and ``assignment`` decide and are pure; ``controller`` keeps the state, on disk too, and
tells the brokers. A broker that is alone has a controller of its own: there is no other way to lead.
May import: answering, configs, security.
"""
