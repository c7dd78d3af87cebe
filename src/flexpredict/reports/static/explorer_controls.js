// Controls of the explorer, by pointer, touch and keyboard.

function buildControls() {
  buildPanels();
  buildThumbnails();
  const most = Math.max(...explorer.models.map(model => model.masks.length));
  const masks = document.getElementById("mask");
  masks.append(...Array.from({ length: most }, (_, i) => new Option(`mask ${i + 1}`, i)), new Option("none", -1));
  explorer.mask = most ? 0 : -1;
  masks.value = explorer.mask;
  masks.parentNode.hidden = document.getElementById("legend").hidden = !most;
  const moving = explorer.models.some(model => model.positions);
  document.getElementById("noise-level").max = Math.max(2, Math.ceil(1.25 * Math.max(...explorer.models.map(trainedRatio))));
  for (const id of ["noise-level", "draws", "positions"]) document.getElementById(id).parentNode.hidden = !moving;
  const names = lead().layers.map(layer => layer.name);
  document.getElementById("layer").append(...names.map((name, i) => new Option(name, i)));
  listen("mask", "change", value => { explorer.mask = Number(value); });
  listen("layer", "change", value => { explorer.layer = Number(value); });
  listen("noise-level", "input", value => { explorer.ratio = Number(value); });
  listen("as-trained", "click", () => { explorer.ratio = null; });
  listen("draws", "change", value => { explorer.draws = value; });
  listen("positions", "change", value => { explorer.kind = value; });
  listen("next-draw", "click", () => { explorer.draw += 1; });
  const scene = document.getElementById("scene");
  for (const type of ["pointerdown", "pointermove"]) scene.addEventListener(type, event => pointAt(event, scene));
  scene.addEventListener("keydown", onSceneKey);
}

function listen(id, type, change) {
  document.getElementById(id).addEventListener(type, event => { change(event.target.value); explore(); });
}

function choosePatch(patch) {
  if (patch === explorer.patch) return;
  explorer.patch = patch;
  explore();
}

function pointAt(event, scene) {
  const [rows, columns] = lead().grid, box = scene.getBoundingClientRect();
  const row = Math.floor((event.clientY - box.top) / box.height * rows);
  const column = Math.floor((event.clientX - box.left) / box.width * columns);
  if (row >= 0 && row < rows && column >= 0 && column < columns) choosePatch(row * columns + column);
}

function onSceneKey(event) {
  const [rows, columns] = lead().grid;
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const [down, right] = moves[event.key];
  const row = Math.min(rows - 1, Math.max(0, Math.floor(explorer.patch / columns) + down));
  const column = Math.min(columns - 1, Math.max(0, explorer.patch % columns + right));
  choosePatch(row * columns + column);
}

function buildThumbnails() {
  const set = explorer.sets[lead().set], strip = document.getElementById("thumbnails");
  set.images.forEach((image, i) => {
    const button = make("button", { type: "button", title: image.name, ariaLabel: `Image ${i + 1}: ${image.name}` });
    const picture = set.pictures[i].cloneNode();
    picture.alt = "";
    button.append(picture);
    button.setAttribute("aria-pressed", i === explorer.image);
    button.addEventListener("click", () => {
      explorer.image = i;
      [...strip.children].forEach((other, j) => other.setAttribute("aria-pressed", i === j));
      explore();
    });
    strip.append(button);
  });
}

function buildPanels() {
  const captions = {
    prediction: ["Prediction resembles", "Cosine of the predicted features with each patch"],
    own: ["Patch itself resembles", "Cosine of its features with each patch"],
    position: ["Position seems to be", ""],
  };
  explorer.models.forEach((model, i) => {
    const maps = Object.entries(captions).map(([name, [title, note]]) => {
      const canvas = make("canvas");
      canvas.setAttribute("role", "img");
      const figure = make("figure", { className: "map" },
        caption(title, note),
        canvas, make("p", { className: "scale" }, make("span", { className: "low" }), make("i"), make("span", { className: "high" })));
      figure.dataset.map = name;
      if (name === "prediction") figure.append(make("p", { className: "instead", textContent: "Choose a masked patch." }));
      return figure;
    });
    const patches = make("div", { className: "patches" }, ...Array.from({ length: NEIGHBORS }, () => make("div", {}, make("canvas"), make("small"))));
    const panel = make("article", { id: `model-${i}` },
      modelTitle(model, make("small", { textContent: model.what })),
      make("div", { className: "maps" }, ...maps),
      make("figure", { className: "nearest" }, caption("Nearest in other images", ""), patches));
    document.getElementById("views").append(panel);
    if (explorer.models.length > 1) buildChoice(model, i);
  });
}

function caption(title, note) {
  return make("figcaption", {}, make("b", { textContent: title }), make("small", { textContent: note }));
}

function modelTitle(model, ...more) {
  const swatch = make("i", { className: "swatch" });
  swatch.style.background = `var(--run-${model.color})`;
  return make("h3", { className: "run" }, swatch, make("span", { textContent: model.label }), ...more);
}

function buildChoice(model, i) {
  const box = make("input", { type: "checkbox", checked: explorer.shown.has(i) });
  box.addEventListener("change", () => {
    const before = lead().grid;
    if (box.checked) explorer.shown.add(i); else if (explorer.shown.size > 1) explorer.shown.delete(i); else box.checked = true;
    explorer.patch = samePlace(explorer.patch, before, lead().grid);
    explore();
  });
  document.getElementById("shown-models").append(make("label", {}, box, ` ${model.label}`));
}
