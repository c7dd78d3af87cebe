"""How the page of a run looks, and the few lines of script that read out a chart under the pointer."""

from flexpredict.reports.charts import HEIGHT, WIDTH

PAGE_STYLE = """
:root { color-scheme: light dark; --font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  --page: #f7f7f5; --card: #fff; --ink: #1d2129; --soft: #69707d; --rule: #e4e5e8; --accent: #2a5bd7;
  --bad: #c2352b; --warn: #b7791f; --warn-page: #fdf6e7; }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #121418; --card: #1a1d23; --ink: #e6e8ec; --soft: #959cab; --rule: #2c3038; --accent: #7ba4ff;
    --bad: #ff7b70; --warn: #e0ac4f; --warn-page: #262117; } }
* { box-sizing: border-box; }
body { max-width: 72rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 var(--font); overflow-wrap: anywhere; -webkit-text-size-adjust: 100%; }
h1 { margin: 0; font-size: clamp(1.35rem, 4vw, 2rem); line-height: 1.2; letter-spacing: -.015em; text-wrap: balance; }
h2 { margin: 0 0 .3rem; font-size: 1.25rem; letter-spacing: -.01em; break-after: avoid; }
small { font-size: .82rem; }
header p { margin: .4rem 0 0; color: var(--soft); }
header .over { margin: 0 0 .4rem; font-size: .82rem; }
section { margin-top: 2.75rem; }
section > p { max-width: 56rem; margin: 0 0 1rem; color: var(--soft); break-after: avoid; }
section > p b { color: var(--ink); font-weight: 600; }
.empty { margin-top: 2rem; padding: 1.2rem; background: var(--card); border: 1px dashed var(--rule);
  border-radius: .6rem; }
.tiles { display: flex; flex-wrap: wrap; gap: 1px; margin: 1.75rem 0 0;
  background: var(--rule); border: 1px solid var(--rule); border-radius: .6rem; overflow: hidden; }
.tiles div { flex: 1 1 8.6rem; padding: .9rem 1rem; background: var(--card); break-inside: avoid; }
.tiles dt { font-size: .82rem; color: var(--soft); }
.tiles dd { margin: 0; font-size: 1.3rem; font-weight: 600; line-height: 1.4; letter-spacing: -.02em; }
.tiles b { font-weight: inherit; white-space: nowrap; }
.tiles small { display: block; font-size: .75rem; font-weight: 400; line-height: 1.35; letter-spacing: 0;
  color: var(--soft); }
.warnings { margin-top: 1.25rem; padding: .9rem 1.2rem; background: var(--warn-page);
  border-left: 4px solid var(--warn); border-radius: .3rem .6rem .6rem .3rem; }
.warnings h2 { font-size: 1rem; color: var(--warn); }
.warnings ul { margin: 0; padding-left: 1.1rem; }
.when { color: var(--soft); font-size: .82rem; white-space: nowrap; }
table { width: 100%; border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { padding: .2rem 0; text-align: left; font-weight: 600; }
th, td { padding: .3rem .8rem .3rem 0; border-top: 1px solid var(--rule); text-align: left; vertical-align: top; }
th { font-weight: 400; color: var(--soft); }
.settings { columns: 3 18rem; column-gap: 1rem; margin-top: .8rem; }
.settings div, .wide { padding: .7rem 1.1rem; background: var(--card); border: 1px solid var(--rule);
  border-radius: .6rem; }
.settings div { margin-bottom: 1rem; break-inside: avoid; }
.settings th { width: 42%; }
.alone { columns: 1; }
.alone th { width: 12rem; }
.settings tr:first-child > * { border-top: 0; }
.wide { overflow-x: auto; overflow-wrap: normal; margin-top: .8rem; }
details td { overflow-wrap: anywhere; }
.wide thead th { border-top: 0; }
@media print {
  html { font-size: 80%; }
  body { max-width: none; padding: 0; background: none; }
  section { margin-top: 1.5rem; } }
"""

CHART_STYLE = """
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
.chart { display: flex; flex-direction: column; flex: 1 1 max(17rem, var(--basis)); min-width: 0; margin: 0;
  padding: 1rem 1.1rem .8rem; background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  break-inside: avoid; }
.chart figcaption { display: grid; grid-template-columns: minmax(0, 1fr) auto; column-gap: .8rem;
  align-items: baseline; margin-bottom: .9rem; }
.chart b { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.chart output { font-variant-numeric: tabular-nums; font-weight: 600; color: var(--accent); }
.chart small { grid-column: 1 / -1; color: var(--soft); }
.chart em { color: var(--bad); font-style: normal; }
.plot { position: relative; height: 10.5rem; margin: auto .3rem 1.7rem 3.2rem; touch-action: pan-y; }
.plot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.plot path { fill: none; stroke: var(--accent); vector-effect: non-scaling-stroke;
  stroke-linejoin: round; stroke-linecap: round; }
.plot .grid { stroke: var(--rule); stroke-linecap: butt; }
.plot .raw { stroke-width: 1; opacity: .4; }
.plot .line { stroke-width: 2; }
.plot .dots { stroke-width: 6; }
.plot .gap { stroke: var(--bad); stroke-width: 1.5; }
.plot i { position: absolute; font: .72rem/1 var(--font); font-variant-numeric: tabular-nums; color: var(--soft);
  white-space: nowrap; }
.plot .y { right: 100%; margin-right: .5rem; transform: translateY(50%); }
.plot .x { top: 100%; margin-top: .55rem; transform: translateX(-50%); }
.plot .axis { left: 0; transform: translateX(-100%); margin-left: -.5rem; }
.plot .cursor { width: 1px; top: 0; bottom: 0; background: var(--soft); pointer-events: none; }
.plot .cursor::after { content: ""; position: absolute; left: -3.5px; bottom: var(--up); width: 8px; height: 8px;
  margin-bottom: -4px; border-radius: 50%; background: var(--accent); }
"""

# While the pointer is over a plot, the number beside its title is the one under the pointer.
CHART_SCRIPT = """
for (const plot of document.querySelectorAll(".plot")) {
  const output = plot.parentNode.querySelector("output"), last = output.textContent;
  const path = plot.querySelector(".line");
  if (!path) continue;
  const points = path.getAttribute("d").match(/[-.\\d]+,[-.\\d]+/g).map(pair => pair.split(",").map(Number));
  const [[x0, x1], [y0, y1]] = [plot.dataset.x, plot.dataset.y].map(ends => ends.split(" ").map(Number));
  const log = plot.dataset.log === "1", width = WIDTH, height = HEIGHT;
  const digits = log ? 3 : Math.min(12, 3 + Math.ceil(Math.log10(Math.max(Math.abs(y0), Math.abs(y1)) / (y1 - y0))));
  const cursor = document.createElement("i");
  cursor.className = "cursor";
  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * width;
    const [x, y] = points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
    const up = 1 - y / height, value = log ? y0 * (y1 / y0) ** up : y0 + (y1 - y0) * up;
    cursor.style.left = x / width * 100 + "%";
    cursor.style.setProperty("--up", up * 100 + "%");
    plot.append(cursor);
    const step = Math.round(x0 + (x1 - x0) * x / width).toLocaleString("en");
    output.textContent = `${Number(value.toPrecision(digits))}${plot.dataset.unit} at step ${step}`;
  });
  plot.addEventListener("pointerleave", () => { cursor.remove(); output.textContent = last; });
}
""".replace("WIDTH", str(WIDTH)).replace("HEIGHT", str(HEIGHT))
