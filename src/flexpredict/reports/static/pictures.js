// Pictures of features: a row for each kind, of each model.

function startPictures() {
  const place = document.getElementById("picture-rows");
  if (!place) return;
  for (const model of explorer.models) {
    const set = explorer.sets[model.set], { components, attention, neighbors } = model.pictures;
    const swatch = make("i", { className: "swatch" });
    swatch.style.background = `var(--run-${model.color})`;
    place.append(make("h3", { className: "run" }, swatch, make("span", { textContent: model.label })));
    place.append(make("p", { className: "hint", textContent: "The three main components of all patch features as red, green and blue: patches of one color are alike to the model." }));
    place.append(strip(set.images.flatMap((image, i) => [[image.uri, image.name], [components[i], `Components of ${image.name}`]]).reduce(pairs, [])));
    if (attention) {
      place.append(make("p", { className: "hint", textContent: "Where the last block looks, mean over its heads: bright is much." }));
      place.append(strip(set.images.flatMap((image, i) => [[image.uri, image.name], [attention[i], `Attention in ${image.name}`]]).reduce(pairs, [])));
    }
    if (model.films?.length) {
      place.append(make("p", { className: "hint", textContent: "Objects followed through videos of DAVIS: the masks of the first frame are given, the others are carried along by similar patches." }));
      place.append(make("div", { className: "films" }, ...model.films.map(({ uri, name }) =>
        make("figure", {}, safePicture(uri, name), make("figcaption", { textContent: name })))));
    }
    place.append(make("p", { className: "hint", textContent: `The nearest of ${neighbors.searched} images, by the cosine of their features; the query is at the left.` }));
    place.append(make("div", { className: "rankings" }, ...neighbors.rankings.map(({ image, found }) => ranking(set.images[image], found, neighbors.images))));
  }
}

function pairs(list, picture, i) {
  if (i % 2) list[list.length - 1].push(picture); else list.push([picture]);
  return list;
}

function safePicture(uri, name) {
  return make("img", { src: String(uri).startsWith("data:image/") ? uri : "data:,", alt: name, title: name });
}

function strip(groups) {
  return make("div", { className: "pairs" }, ...groups.map(group => make("div", {}, ...group.map(([uri, name]) => safePicture(uri, name)))));
}

function ranking(query, found, images) {
  const tile = (image, note) => make("figure", {}, safePicture(image.uri, image.name), make("figcaption", { textContent: note }));
  return make("div", { className: "ranking" }, tile(query, query.class || "query"),
    ...found.map(({ row, cosine }) => tile(images[row], [cosine.toFixed(3).replace("-", "−"), images[row].class].filter(Boolean).join(" · "))));
}
