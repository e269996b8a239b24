const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
let charts = [];

function setTheme(name) {
  root.dataset.theme = name;
  document.getElementById("theme").setAttribute("aria-pressed", String(name === "dark"));
  for (const chart of charts) chart.draw();
}

setTheme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => {
  setTheme(root.dataset.theme === "dark" ? "light" : "dark");
});

const data = readData();
const table = new Table(data, (low, high) => {
  writeRange(low, high);
  charts[0]?.draw();
});
attachControls(table, data);
performance.mark("pointdep-table");

// The charting library takes a second to read. With an address it is read beside the page, and the
// table can be used meanwhile; the policy lets it run by its hash. Browsers that know hashes of
// scripts inside the page only run it in place.
function startCharts() {
  const source = document.getElementById("plotly");
  const script = element("script");
  const address = URL.createObjectURL(new Blob([source.textContent], { type: "text/javascript" }));
  script.addEventListener("load", () => {
    URL.revokeObjectURL(address);
    drawCharts();
  });
  script.addEventListener("error", () => {
    script.replaceWith(element("script", "", source.textContent));
    drawCharts();
  });
  script.integrity = source.dataset.hash;
  script.src = address;
  source.replaceWith(script);
}

function drawCharts() {
  const setRange = (low, high) => table.setRange(low, high);
  charts = [makeHistogram(data, () => table.state, setRange), makeReliability(data)];
  root.dataset.ready = "yes";
  performance.mark("pointdep-ready");
}

document.addEventListener("DOMContentLoaded", () => requestAnimationFrame(() => setTimeout(startCharts)));
