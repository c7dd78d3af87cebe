// A page that `flexpredict serve` has made reads its curves again while a run goes on.

const SECONDS_BETWEEN = 5;

function startRefreshing() {
  if (!document.body.hasAttribute("data-served") || !curveData) return;
  let known = JSON.stringify(curveData);
  setInterval(async () => {
    try {
      const answer = await fetch(`curves.json${location.search}`);
      if (!answer.ok) return;
      const text = await answer.text();
      if (text !== known) { known = text; curveData = JSON.parse(text); redrawCharts(); }
    } catch { /* the server is gone: the curves stay as they are */ }
  }, 1000 * SECONDS_BETWEEN);
}
