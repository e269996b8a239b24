const PAGE_ROWS = 50;
const IN_WORDS = {
  suspects: "suspects", below: "rows below zero", sample: "rows to review", reviewed: "reviewed rows", all: "rows",
};

// key: the values to sort by, NaN or "" last whichever way. hint: what the column says.
const COLUMNS = [
  { name: "Rank", key: (data) => data.rank, hint: "1 has the lowest PMI" },
  { name: "Row", key: (data) => Int32Array.from(data.rank, (_, row) => row), hint: "row of the data, from 0" },
  { name: "x", key: (data) => data.lower.x() ?? data.rank, hint: "x of the pair" },
  { name: "y", key: (data) => data.lower.y() ?? data.rank, hint: "y of the pair" },
  {
    name: "PMI", key: (data) => data.pmi,
    hint: "log r in nats by models that did not see the row ± standard error; below 0: together less often than chance",
  },
  { name: "Chance", key: (data) => data.posterior, descending: true, hint: "probability that the pair is wrong" },
  { name: "q", key: (data) => data.q_value, hint: "expected share of right pairs among this one and all more likely wrong" },
  { name: "Note", key: kindOfNote, hint: "what may be right instead, and what speaks against the pair" },
  { name: "Review", key: verdictOf, hint: "your decision: keys r, w and u" },
];

function verdictOf(data) {
  const order = Object.keys(VERDICTS);
  return Float32Array.from(data.rank, (_, row) => (data.decisions.has(row) ? order.indexOf(data.decisions.get(row)) : NaN));
}

function kindOfNote(data) {
  const { swapped_with, duplicate_of, better_partner } = data.gaps;
  return Float32Array.from(data.rank, (_, row) => {
    if (swapped_with.has(row)) return 0;
    if (duplicate_of.has(row)) return 1;
    return better_partner.has(row) || data.better_label.has(String(row)) ? 2 : NaN;
  });
}

function sortedRows(data, column, descending) {
  const keys = column.key(data);
  const sign = descending ? -1 : 1;
  const missing = (value) => value === "" || value !== value;
  return Int32Array.from(data.rank, (_, row) => row).sort((a, b) => {
    const one = keys[a];
    const other = keys[b];
    if (one < other) return missing(one) ? 1 : -sign;
    if (one > other) return missing(other) ? -1 : sign;
    if (missing(one) !== missing(other)) return missing(one) ? 1 : -1;
    return data.rank[a] - data.rank[b];
  });
}

function matching(data, state) {
  const words = state.query.trim().toLowerCase();
  const sides = words ? [data.lower.x(), data.lower.y()].filter((texts) => texts) : [];
  const labels = words ? data.better_label : new Map();
  const found = (row) =>
    String(row) === words ||
    sides.some((texts) => texts[row].includes(words)) ||
    (labels.get(String(row)) ?? "").toLowerCase().includes(words);
  const any = state.low === -Infinity && state.high === Infinity;
  const order = state.show === "sample" ? data.sample : state.order; // which has an order of its own
  return order.filter(
    (row) =>
      (state.show !== "suspects" || data.suspect[row]) &&
      (state.show !== "below" || data.pmi[row] < 0) &&
      (state.show !== "reviewed" || data.decisions.has(row)) &&
      (any || (data.pmi[row] >= state.low && data.pmi[row] <= state.high)) &&
      (!words || found(row)),
  );
}

// What the table shows of the rows, and how it changes; onRange is told of a new range of PMI.
class Table {
  constructor(data, onRange) {
    this.data = data;
    this.onRange = onRange;
    this.state = { show: "all", query: "", low: -Infinity, high: Infinity, page: 0, column: -1, current: -1 };
    this.head = document.getElementById("head");
    this.head.append(...COLUMNS.map((column, index) => headerCell(column, () => this.sortBy(index))));
    this.state.order = new Int32Array(0);
    this.sortBy(0);
    this.setShow(data.suspect.includes(1) ? "suspects" : "all");
  }

  get pages() {
    return Math.max(1, Math.ceil(this.rows.length / PAGE_ROWS));
  }

  goTo(page) {
    this.state.page = Math.min(Math.max(page, 0), this.pages - 1);
    const first = this.state.page * PAGE_ROWS;
    const shown = Array.from(this.rows.subarray(first, first + PAGE_ROWS));
    document.getElementById("body").replaceChildren(...shown.map((row) => rowElement(this.data, row)));
    this.setCurrent(shown.includes(this.state.current) ? this.state.current : -1, false);
    const place = `Page ${this.state.page + 1} of ${this.pages.toLocaleString("en")}`;
    document.getElementById("page").textContent = place;
    for (const button of document.querySelectorAll("#pages button")) {
      const back = ["first", "previous"].includes(button.dataset.go);
      button.disabled = this.state.page === (back ? 0 : this.pages - 1);
    }
  }

  // The row that keys are about.
  setCurrent(row, scroll) {
    this.state.current = row;
    for (const line of document.getElementById("body").children) {
      const own = Number(line.dataset.row) === row;
      if (own) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
      if (own && scroll) line.scrollIntoView({ block: "nearest" });
    }
  }

  // To the next row or the one before, on other pages too.
  move(step) {
    const { current, page } = this.state;
    const place = current < 0 ? page * PAGE_ROWS : this.rows.indexOf(current) + step;
    if (place < 0 || place >= this.rows.length) return;
    const row = this.rows[place];
    if (Math.floor(place / PAGE_ROWS) !== page) this.goTo(Math.floor(place / PAGE_ROWS));
    this.setCurrent(row, true);
  }

  refresh() {
    this.rows = matching(this.data, this.state);
    const [count, all] = [this.rows.length, this.data.rows].map((n) => n.toLocaleString("en"));
    document.getElementById("count").textContent = `${count} of ${all} rows shown`;
    const empty = document.getElementById("empty");
    empty.hidden = this.rows.length > 0;
    empty.firstElementChild.textContent = `No ${IN_WORDS[this.state.show]} here.`;
    document.querySelector(".box").hidden = this.rows.length === 0;
    this.goTo(0);
  }

  sortBy(index) {
    const { state } = this;
    state.descending = state.column === index ? !state.descending : Boolean(COLUMNS[index].descending);
    state.column = index;
    state.order = sortedRows(this.data, COLUMNS[index], state.descending);
    for (const [place, header] of [...this.head.children].entries()) {
      const way = state.descending ? "descending" : "ascending";
      header.setAttribute("aria-sort", place === index ? way : "none");
    }
    this.refresh();
  }

  setRange(low, high) {
    [this.state.low, this.state.high] = low <= high ? [low, high] : [high, low];
    this.onRange(this.state.low, this.state.high);
    this.refresh();
  }

  setShow(show) {
    this.state.show = show;
    for (const radio of document.getElementsByName("show")) radio.checked = radio.value === show;
    this.refresh();
  }

  setQuery(query) {
    this.state.query = query;
    this.refresh();
  }
}

function headerCell({ name, hint }, onClick) {
  const header = element("th");
  header.scope = "col";
  header.setAttribute("role", "columnheader");
  const button = element("button", "", name);
  button.type = "button";
  button.title = hint;
  button.addEventListener("click", onClick);
  header.append(button);
  return header;
}
