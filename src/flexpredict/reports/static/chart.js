// One chart: the curves of one metric, of all runs.

const FEW_POINTS = 40;  // up to here every point gets a dot
const LEAST_SPAN = 0.1;  // of the largest value: the smallest range of the axis, so that small changes look small
const PLOT_HEIGHT = 192;
const AXIS_FONT = "11px system-ui, sans-serif";

// view: along, scale, smoothing, range (of the x axis, or null) and zoomTo(range), shared by all charts.
function drawChart(figure, chart, runs, view) {
  const plot = figure.querySelector(".plot");
  const curves = chart.series.map((series, run) => series && curveOf(series, runs[run], chart, view));
  const shown = curves.map((curve, run) => ({ ...curve, run })).filter(curve => curve.line);
  const log = view.scale === "log" || (view.scale === "auto" && hasSpikes(shown));
  const tables = shown.flatMap(curve => [curve.line, ...(curve.faint ? [curve.faint] : [])])
    .map(([xs, ys]) => [xs, log ? ys.map(y => y > 0 ? y : null) : ys]);
  const data = uPlot.join(tables, tables.map(() => [0, 2]));  // keep the nulls that break a line
  const color = curve => runs.length > 1 ? cssColor(`--run-${curve.run % 8}`) : cssColor("--accent");
  const series = shown.flatMap(curve => [
    { stroke: () => color(curve), width: 2, dash: curve.run >= 8 ? [6, 4] : undefined,
      points: { show: curve.line[0].length <= FEW_POINTS, size: 5, fill: () => color(curve) } },
    ...(curve.faint ? [{ stroke: () => faded(color(curve)), width: 1, points: { show: false } }] : []),
  ]);
  const exact = !chart.noisy;
  const options = {
    width: Math.max(120, plot.clientWidth), height: PLOT_HEIGHT, padding: [10, 16, 0, 0], legend: { show: false },
    scales: {
      x: { time: false, range: (u, low, high) => view.range ?? (low === high ? [low - 0.5, high + 0.5] : [low, high]) },
      y: { distr: log ? 3 : 1, log: 10, range: (u, low, high) => log ? decades(low, high) : valueRange(low, high, chart.share, exact) },
    },
    axes: [
      axis({ space: 60, size: 24, label: view.along, labelSize: 16, labelGap: 0, labelFont: AXIS_FONT }, ""),
      axis({ size: 52, space: 28 }, chart.unit),
    ],
    series: [{}, ...series],
    cursor: {
      y: false, points: { size: 8, fill: (u, i) => u.series[i].stroke(), show: true },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => view.zoomTo(null) },
      sync: { key: "curves", scales: ["x", null], filters: { pub: type => type === "mousemove" || type === "mouseleave" } },
    },
    hooks: {
      setSelect: [u => { if (u.select.width > 4) zoomToSelection(u, view); }],
      setCursor: [u => readOut(u, figure, chart, runs, shown, view)],
      draw: [u => drawGaps(u, chart, runs, view)],
    },
  };
  plot.replaceChildren();
  const drawn = new uPlot(options, data, plot);
  drawn.curves = curves;
  return drawn;
}

function curveOf(series, run, chart, view) {
  const [steps, values] = series.raw;
  const raw = [along(steps, run, view.along), values];
  if (!chart.noisy || !view.smoothing || steps.length < 10) return { line: raw };
  const [meanSteps, means] = series.means ?? series.raw;
  const xs = along(meanSteps, run, view.along);
  const bandwidth = view.smoothing * 0.01 * (xs[xs.length - 1] - xs[0] || 1);
  return { line: [xs, smooth(xs, means, bandwidth)], faint: raw };
}

function along(steps, run, unit) {
  if (unit === "images" && run.batch) return steps.map(step => step * run.batch);
  if (unit === "minutes" && run.minutes[0].length) return steps.map(step => interpolated(run.minutes, step));
  return steps;
}

function interpolated([xs, ys], x) {
  let low = 0, high = xs.length - 1;
  if (x <= xs[0]) return xs[0] ? ys[0] * x / xs[0] : ys[0];  // time starts at step 0
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  return high === low ? ys[low] : ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / (xs[high] - xs[low]);
}

// On a linear scale, a few spikes would flatten all other values.
function hasSpikes(curves) {
  const values = curves.flatMap(curve => (curve.faint ?? curve.line)[1]).filter(value => value !== null).sort((a, b) => a - b);
  return values.length > 0 && values[0] > 0 && values[values.length - 1] > 30 * values[values.length >> 1];
}

function decades(low, high) {
  if (low === null || !(low > 0)) return [0.1, 1];
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  return [10 ** first, 10 ** Math.max(last, first + 1)];
}

// The range of the axis: within 0 and 100% for a share, and wide enough that noise does not look like a jump.
// Schedules are exact, so their smallest change is real.
function valueRange(low, high, share, exact) {
  if (low === null) return [0, 1];
  const largest = Math.max(Math.abs(low), Math.abs(high));
  const least = Math.max((exact && high > low ? 1e-6 : LEAST_SPAN) * largest, share ? 1 : 0);
  if (high - low < least) {
    const middle = (low + high) / 2;
    [low, high] = largest < 1e-29 ? [0, 1] : [middle - least / 2, middle + least / 2];
  }
  const room = 0.05 * (high - low);
  let [bottom, top] = [low >= 0 && low < 0.3 * high ? 0 : low - room, high + room];
  if (share) [bottom, top] = [Math.max(0, bottom), Math.min(100, Math.max(top, bottom + 1e-6))];
  return [bottom, top];
}

function axis(sizes, unit) {
  return {
    ...sizes, stroke: () => cssColor("--soft"), font: AXIS_FONT, gap: 6,
    grid: { stroke: () => cssColor("--rule"), width: 1 }, ticks: { show: false },
    values: (u, ticks, index, space, spacing) => {
      if (u.scales[u.axes[index].scale].distr === 3) {
        return ticks.map(tick => tick !== null && Number.isInteger(Math.log10(tick)) ? formatNumber(tick, 3, unit) : "");
      }
      return tickLabels(ticks, spacing, unit);
    },
  };
}

function faded(color) {
  return color.replace(/rgba?\(([^)]+)\)/, (_, parts) => `rgba(${parts.split(",").slice(0, 3).join(",")}, 0.35)`);
}

function zoomToSelection(u, view) {
  const range = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
  u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  view.zoomTo(range);
}

// Red marks where a value was not finite.
function drawGaps(u, chart, runs, view) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.strokeStyle = cssColor("--bad");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  chart.series.forEach((series, run) => {
    if (!series) return;
    const xs = along(series.raw[0], runs[run], view.along);
    series.raw[1].forEach((value, i) => {
      if (value !== null) return;
      const x = u.valToPos(xs[i], "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) return;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x, bbox.top + 0.88 * bbox.height);
      ctx.stroke();
    });
  });
  ctx.restore();
}

// While the pointer is over a chart, every chart shows its values at the pointer beside the names.
function readOut(u, figure, chart, runs, shown, view) {
  const at = u.cursor.left >= 0 && u.cursor.idx !== null ? u.posToVal(u.cursor.left, "x") : null;
  const outputs = runs.length > 1 ? figure.querySelectorAll(".legend output") : figure.querySelectorAll("figcaption output");
  shown.forEach((curve, i) => {
    const output = outputs[i];
    output.dataset.last ??= output.textContent;
    const found = at === null ? null : nearest(curve.line, at);
    if (found === null) { output.textContent = output.dataset.last; return; }
    const digits = chart.digits + 1;
    const value = formatNumber(found.value, digits, chart.unit);
    output.textContent = runs.length > 1 ? value : `${value} at ${position(found.x, view.along)}`;
  });
  if (runs.length > 1) {
    figure.querySelector("figcaption output").textContent = at === null ? "" : position(at, view.along);
  }
}

function nearest([xs, ys], x) {
  let best = null;
  for (let i = 0; i < xs.length; i++) {
    if (ys[i] === null) continue;
    if (best === null || Math.abs(xs[i] - x) < Math.abs(best.x - x)) best = { x: xs[i], value: ys[i] };
  }
  return best;
}

function position(x, unit) {
  if (unit === "minutes") return `${x.toFixed(x < 10 ? 2 : 1)} min`;
  return `${unit === "images" ? "image" : "step"} ${Math.round(x).toLocaleString("en")}`;
}
