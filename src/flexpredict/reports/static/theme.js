// Light or dark: follows the system until the button is used.

const themeChanged = new EventTarget();
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemIsDark.matches;
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  themeChanged.dispatchEvent(new Event("change"));
}

function remembered(name, value) {
  try {  // Pages opened from disk may have no storage.
    return value === undefined ? localStorage.getItem(name) : localStorage.setItem(name, value);
  } catch { return null; }
}

// A canvas needs a color value, and only a styled element resolves light-dark().
const colorProbe = document.createElement("i");
colorProbe.hidden = true;
document.body.append(colorProbe);
function cssColor(name) {
  colorProbe.style.color = `var(${name})`;
  return getComputedStyle(colorProbe).color;
}

function startTheme() {
  const chosen = remembered("flexpredict-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  document.getElementById("theme").addEventListener("click", () => {
    setTheme(isDark() ? "light" : "dark");
    remembered("flexpredict-theme", document.documentElement.dataset.theme);
  });
  systemIsDark.addEventListener("change", () => themeChanged.dispatchEvent(new Event("change")));
  // Always print in light colors.
  let before;
  addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; setTheme("light"); });
  addEventListener("afterprint", () => {
    if (before) return setTheme(before);
    delete document.documentElement.dataset.theme;
    themeChanged.dispatchEvent(new Event("change"));
  });
}
