// Pictures of features: for each model, a row of each kind.

function startPictures() {
  const place = document.getElementById("pictures");
  for (const model of explorer.models) {
    const set = explorer.sets[model.set], { components, attention, neighbors } = model.pictures;
    place.append(modelTitle(model));
    place.append(hint("Beside each image: the three main components of all patch features as red, green and blue; patches of similar color have similar features"
      + (attention ? ". Then the attention of the last block, mean over its heads; bright is high." : ".")));
    place.append(make("div", { className: "triples" }, ...set.images.map((image, i) => make("div", {},
      safePicture(image.uri, image.name), safePicture(components[i], `Components of ${image.name}`),
      ...(attention ? [safePicture(attention[i], `Attention in ${image.name}`)] : [])))));
    if (model.films?.length) {
      place.append(hint("Objects followed through videos (evaluate davis): the masks of the first frame are given and propagated to similar patches of later frames."));
      place.append(make("div", { className: "films" }, ...model.films.map(({ uri, name }) => tile({ uri, name }, name))));
    }
    place.append(hint(`The nearest of ${neighbors.searched} images, by the cosine of their features; the query is at the left.`));
    place.append(make("div", { className: "rankings" }, ...neighbors.rankings.map(({ image, found }) => ranking(set.images[image], found, neighbors.images))));
  }
}

function hint(text) {
  return make("p", { className: "hint", textContent: text });
}

function safePicture(uri, name) {
  return make("img", { src: String(uri).startsWith("data:image/") ? uri : "data:,", alt: name, title: name });
}

function tile(image, note) {
  return make("figure", {}, safePicture(image.uri, image.name), make("figcaption", { textContent: note }));
}

function ranking(query, found, images) {
  return make("div", { className: "ranking" }, tile(query, query.class || "query"),
    ...found.map(({ row, cosine }) => tile(images[row], [cosine.toFixed(3).replace("-", "−"), images[row].class].filter(Boolean).join("\n"))));
}
