const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

function setTheme(name) {
  root.dataset.theme = name;
  document.getElementById("theme").setAttribute("aria-pressed", String(name === "dark"));
}

setTheme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => {
  setTheme(root.dataset.theme === "dark" ? "light" : "dark");
});

const data = readData();
let bars = null;
const review = new Review(data);
const table = new Table(data, (low, high) => {
  writeRange(low, high);
  bars?.showRange();
});
attachControls(table, data);
attachReview(table, data, review);
attachRate(data, table);
review.tell();
performance.mark("pointdep-table");
bars = makeHistogram(data, () => table.state, (low, high) => table.setRange(low, high));
drawReliability(data);
root.dataset.ready = "yes";
performance.mark("pointdep-ready");
