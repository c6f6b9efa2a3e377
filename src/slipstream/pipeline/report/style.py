"""How the report looks: in light and dark, on a screen, a phone and paper."""

from __future__ import annotations

_STYLE = """
:root {
  color-scheme: light dark;
  --page: light-dark(#f6f7f9, #12151b); --card: light-dark(#ffffff, #1b2029); --ink: light-dark(#1c2330, #e6e9ef);
  --soft: light-dark(#5b6575, #9aa4b5); --rule: light-dark(#dde1e8, #313846); --track: light-dark(#e9ecf1, #2a303c);
  --t0: light-dark(#0b69c7, #6cb2ff); --t1: light-dark(#c2570c, #ffa05c); --t2: light-dark(#12805c, #4fd1a1);
  --t3: light-dark(#8a3ffc, #c3a1ff); --t4: light-dark(#b0307a, #ff8ccb); --t5: light-dark(#0e7c86, #5fd4de);
  --t6: light-dark(#6b7280, #a0a8b8); --good: light-dark(#12805c, #4fd1a1); --bad: light-dark(#c62828, #ff7b72);
  --warn: light-dark(#b26a00, #f0b429); --calm: light-dark(#0b69c7, #6cb2ff);
}
/* A page that has it in a frame may want the other. */
:root[data-theme=light] { color-scheme: light; }
:root[data-theme=dark] { color-scheme: dark; }
* { box-sizing: border-box; }
/* Names come from anywhere, and the longest must not make the page wider than a phone; tables scroll. */
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.45; overflow-wrap: anywhere;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 24px 16px 48px; }
header h1 { font-size: 1.6rem; margin: 0 0 4px; }
h2 { font-size: 1.15rem; margin: 0 0 4px; }
h3 { font-size: 0.95rem; margin: 18px 0 4px; }
p { margin: 4px 0 10px; }
a { color: var(--calm); }
.soft, caption { color: var(--soft); }
code { font: 0.88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
section, .tiles > div { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
section { padding: 18px 20px; margin: 16px 0; }
nav { display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 8px 0 0; font-size: 0.9rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(135px, 1fr)); gap: 10px; margin: 16px 0; }
.tiles > div { padding: 10px 14px; }
.tiles b { display: block; font-size: 1.4rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 0.85rem; }
.fresh { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 4px 18px; margin: 8px 0 0;
  padding: 0; list-style: none; font-size: 0.88rem; }
.fresh li { display: flex; justify-content: space-between; gap: 8px; border-bottom: 1px solid var(--rule);
  padding: 2px 0; }
.fresh span { color: var(--soft); white-space: nowrap; }
.scroll { overflow-x: auto; margin: 6px 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; overflow-wrap: normal; }
caption { text-align: left; padding: 4px 0; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td code { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
details { margin: 8px 0 0; font-size: 0.92rem; }
summary { cursor: pointer; color: var(--soft); }
.plot { display: block; width: 100%; height: auto; }
.narrow { display: none; }
.grid2 { display: grid; grid-template-columns: 1fr 1fr; gap: 4px 24px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 6px 0 2px; font-size: 0.88rem; }
.swatch { width: 18px; height: 10px; vertical-align: middle; }
.share { display: block; width: 100%; height: 12px; border-radius: 6px; background: var(--track); }
.bars { list-style: none; margin: 10px 0 0; padding: 0; }
.bars li { margin: 0 0 14px; }
.bars .head { display: flex; justify-content: space-between; gap: 12px; }
.bars .example { font-size: 0.88rem; color: var(--soft); }
.job { display: grid; grid-template-columns: minmax(0, 2fr) 90px minmax(0, 2fr) 142px; gap: 2px 14px;
  align-items: center; padding: 5px 0; border-bottom: 1px solid var(--rule); font-size: 0.88rem; }
.job > :last-child { text-align: right; white-space: nowrap; }
.beneath { display: block; }
.pill { font-weight: 600; }
svg text { fill: var(--ink); }
svg .tick { fill: var(--soft); font-size: 11px; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .dashed { stroke-dasharray: 5 3; }
svg .area { opacity: 0.14; }
svg .hit { fill: transparent; }
svg .hit:hover { fill: var(--soft); fill-opacity: 0.14; }
svg .branch { stroke: var(--rule); stroke-width: 1.2; fill: none; }
svg .strong { font-weight: 650; }
svg .said { fill: var(--soft); font-size: 11px; }
/* tones */
@media (max-width: 640px) {
  main { padding: 16px 10px 32px; }
  section { padding: 14px 12px; }
  .wide { display: none; }
  .narrow { display: block; }
  .grid2 { grid-template-columns: 1fr; }
  .job { grid-template-columns: minmax(0, 2fr) minmax(0, auto); }
  .job > :nth-child(3) { grid-column: 1 / -1; }
  .job > :nth-child(4) { grid-column: 1 / -1; text-align: left; }
}
@media print { section { break-inside: avoid; } nav { display: none; } body { background: none; } }
"""

_TONES = ("t0", "t1", "t2", "t3", "t4", "t5", "t6", "good", "bad", "warn", "calm", "track")

STYLE = _STYLE.replace(
    "/* tones */\n",
    "".join(
        f".line.{tone} {{ stroke: var(--{tone}); }} .fill.{tone}, .area.{tone} {{ fill: var(--{tone}); }} "
        f".pill.{tone} {{ color: var(--{tone}); }}\n"
        for tone in _TONES
    ),
)
