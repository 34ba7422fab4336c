"""Parts of ``compare.py``: the broker far away, floors and goals, bars as SVG."""
