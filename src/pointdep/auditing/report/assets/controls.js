// What a person does around the table, by mouse or keyboard.
function attachControls(table, data) {
  const at = (id) => document.getElementById(id);
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
  for (const radio of document.getElementsByName("show")) {
    radio.addEventListener("change", () => table.setShow(radio.value));
  }
  let typing = 0;
  at("search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => table.setQuery(at("search").value), 150);
  });
  at("everything").addEventListener("click", () => {
    at("search").value = "";
    table.setQuery("");
    table.setRange(-Infinity, Infinity);
    table.setShow("all");
  });
  at("pages").addEventListener("click", (event) => {
    const { page } = table.state;
    const places = { first: 0, previous: page - 1, next: page + 1, last: table.pages - 1 };
    if (!(event.target.dataset?.go in places)) return;
    table.goTo(places[event.target.dataset.go]);
    document.querySelector(".box").scrollIntoView({ block: "nearest" });
  });
  at("download").addEventListener("click", () => save(shownLines(data, table.rows), "rows.csv"));
  attachRange(table);
}

// The range of PMI as two fields.
function attachRange(table) {
  const fields = rangeFields();
  const read = () => {
    const [low, high] = fields.map((field) => (field.value === "" ? NaN : Number(field.value)));
    table.setRange(Number.isNaN(low) ? -Infinity : low, Number.isNaN(high) ? Infinity : high);
  };
  for (const field of fields) field.addEventListener("change", read);
  document.getElementById("reset").addEventListener("click", () => table.setRange(-Infinity, Infinity));
}

function rangeFields() {
  return ["low", "high"].map((id) => document.getElementById(id));
}

function writeRange(low, high) {
  const ends = [low, high];
  for (const [place, field] of rangeFields().entries()) {
    const text = Number.isFinite(ends[place]) ? String(Number(ends[place].toFixed(3))) : "";
    if (Number(field.value) !== Number(text) || text === "") field.value = text;
  }
}
