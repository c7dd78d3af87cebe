// Tables of settings: shows only the rows that differ, or all.

function startTables() {
  for (const box of document.querySelectorAll(".only-differences")) {
    const show = () => box.closest("section").classList.toggle("hide-same", box.checked);
    box.addEventListener("change", show);
    show();
  }
}
