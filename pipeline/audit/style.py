"""The look of the report page, in light and in dark; nothing of it comes from elsewhere."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --dim: #5d6779; --paper: #ffffff; --card: #f4f6f9;
  --line: #d5dbe4; --bar: #2f6db5; --other: #6aa0dc; --hole: #e0b64a; --loss: #c62f2f; --good: #1f7a45; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --dim: #9aa6b8; --paper: #12161d;
  --card: #1b212b; --line: #323b49; --bar: #5b9be0; --other: #35608f; --hole: #d9ad45; --loss: #f0605f;
  --good: #5cc98a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 960px; padding: 24px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 32px 0 8px; }
p { margin: 4px 0; }
.dim { color: var(--dim); }
.verdict { font-size: 18px; font-weight: 600; margin: 8px 0 16px; }
.good { color: var(--good); }
.bad { color: var(--loss); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 10px; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 12px; }
.tile b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.axis { stroke: var(--line); stroke-width: 1; }
.bar { fill: var(--bar); }
.other { fill: var(--other); }
.hole { fill: var(--hole); }
.loss { fill: var(--loss); }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin: 0 5px 0 14px;
  vertical-align: -1px; }
.key.bar { background: var(--bar); margin-left: 0; }
.key.other { background: var(--other); margin-left: 3px; }
.key.hole { background: var(--hole); }
.key.loss { background: var(--loss); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; color: var(--dim); font-weight: 600; }
th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.path { overflow-wrap: anywhere; min-width: 220px; }
footer { margin-top: 32px; color: var(--dim); font-size: 13px; }
"""
