startTheme();
startTables();
startCurves();
startRefreshing();
// For those who want to look behind the page, and for its tests.
window.flexpredict = {
  curves: () => charts.map(({ key, drawn }) => ({ key, data: drawn.data, scales: drawn.scales })),
  view: curveView, explorer, ready: startExplorer().then(startPictures),
};
