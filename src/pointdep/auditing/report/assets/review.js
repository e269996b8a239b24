// What a person decides of the rows: kept in the browser, counted, and given back as a file.
const VERDICTS = { right: "r", wrong: "w", unsure: "u" };
const RATES = [0.001, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5];

function isVerdict(text) {
  return Object.hasOwn(VERDICTS, text);
}

class Review {
  constructor(data) {
    this.data = data;
    this.key = `pointdep-review-${data.key}`;
    const given = Object.entries(data.texts.decision ?? {}).filter(([, verdict]) => isVerdict(verdict));
    this.decisions = new Map(given.map(([row, verdict]) => [Number(row), verdict]));
    try {
      for (const [row, verdict] of Object.entries(JSON.parse(localStorage.getItem(this.key) ?? "{}"))) {
        if (isVerdict(verdict)) this.decisions.set(Number(row), verdict);
        else this.decisions.delete(Number(row));
      }
      localStorage.setItem(this.key, localStorage.getItem(this.key) ?? "{}");
      this.keeps = true;
    } catch {
      this.keeps = false; // as where a browser is told to keep nothing
    }
    this.strata = makeStrata(data);
    this.sample = makeSample(this.strata);
    data.sample = Int32Array.from(this.sample, ({ row }) => row);
    data.decisions = this.decisions;
  }

  // The same verdict again takes it back.
  decide(row, verdict) {
    if (verdict && this.decisions.get(row) !== verdict) this.decisions.set(row, verdict);
    else this.decisions.delete(row);
    if (this.keeps) {
      const cleared = Object.keys(this.data.texts.decision ?? {}).map((one) => [one, ""]);
      localStorage.setItem(this.key, JSON.stringify(Object.fromEntries([...cleared, ...this.decisions])));
    }
    this.tell();
  }

  tell() {
    const counts = { right: 0, wrong: 0, unsure: 0 };
    for (const verdict of this.decisions.values()) counts[verdict] += 1;
    const each = Object.entries(counts).map(([name, count]) => `${count} ${name}`);
    const all = this.decisions.size.toLocaleString("en");
    document.getElementById("counter").textContent = `${all} reviewed: ${each.join(", ")}.`;
    document.getElementById("kept-here").hidden = this.keeps;
    document.getElementById("decisions").disabled = !this.decisions.size;
    this.tellEstimate(estimateShares(this.strata, this.sample, this.decisions));
  }

  tellEstimate({ seen, needed, wrong, cuts }) {
    const place = document.getElementById("estimate");
    if (!wrong) {
      const said = `${seen} of the first ${needed} rows of the sample are reviewed; from ${needed} on, ` +
        "their decisions tell how many pairs are wrong, and how many of the suspects.";
      place.replaceChildren(element("p", "hint", said));
      return;
    }
    const percent = (share) => `${Number((100 * share).toFixed(share < 0.1 ? 1 : 0))}%`;
    const line = ({ share, low, high }) => `${percent(share)} (95% interval ${percent(low)} to ${percent(high)})`;
    const list = element("ul");
    for (const cut of cuts) {
      const suspects = `${cut.count.toLocaleString("en")} suspects at ${percent(cut.cut)}`;
      list.append(element("li", "", `${suspects}: ${line(cut)} are wrong`));
    }
    const said = `By the first ${seen} rows of the sample, ${line(wrong)} of all pairs are wrong.`;
    place.replaceChildren(element("p", "", said), list);
  }
}

// The rate at which rows are suspects, decided anew as it is moved.
function attachRate(data, table) {
  const rates = [...new Set([...RATES, data.fdr])].sort((a, b) => a - b);
  const [slider, told] = ["fdr", "at-rate"].map((id) => document.getElementById(id));
  const [finding, card] = [".finding", "#suspects strong"].map((one) => document.querySelector(one));
  const first = { suspects: data.suspect.slice(), finding: finding.textContent };
  const note = document.querySelector("#suspects .note");
  slider.max = rates.length - 1;
  slider.value = rates.indexOf(data.fdr);
  const decide = () => {
    const fdr = rates[Number(slider.value)];
    const original = fdr === data.fdr;
    const limit = Math.fround(fdr);
    data.suspect = original ? first.suspects.slice() : Uint8Array.from(data.q_value, (q) => Number(q <= limit));
    const count = data.suspect.reduce((sum, one) => sum + one, 0).toLocaleString("en");
    const rate = `${Number((100 * fdr).toPrecision(3))}%`;
    slider.setAttribute("aria-valuetext", rate);
    told.textContent = `${rate}: ${count} suspects`;
    card.textContent = count;
    const share = Number(((100 * count.replaceAll(",", "")) / data.rows).toPrecision(2));
    note.textContent = `${share}% of the rows, at a false discovery rate of ${rate}`;
    const all = data.rows.toLocaleString("en");
    const said = `${count} of ${all} pairs are suspects: up to ${rate} of these are expected to be right.`;
    finding.textContent = original ? first.finding : said;
    return original;
  };
  decide();
  slider.addEventListener("input", () => {
    decide();
    table.refresh();
  });
}

// Buttons of a row. Which row they are of, the table knows.
function reviewCell(data, row) {
  const made = cell("review", "Review");
  const group = element("div");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", `Row ${row} is`);
  for (const [verdict, key] of Object.entries(VERDICTS)) {
    const button = element("button", verdict, verdict);
    button.type = "button";
    button.title = `key ${key}`;
    button.dataset.verdict = verdict;
    button.setAttribute("aria-pressed", String(data.decisions.get(row) === verdict));
    group.append(button);
  }
  made.append(group);
  return made;
}

function attachReview(table, data, review) {
  const at = (id) => document.getElementById(id);
  at("body").addEventListener("click", (event) => {
    const line = event.target.closest("tr");
    if (!line) return;
    table.setCurrent(Number(line.dataset.row), false);
    const verdict = event.target.dataset?.verdict;
    if (verdict) decide(verdict, false);
  });
  function decide(verdict, onward) {
    const row = table.state.current;
    review.decide(row, verdict);
    for (const button of document.querySelectorAll("tr[aria-current] [data-verdict]")) {
      button.setAttribute("aria-pressed", String(data.decisions.get(row) === button.dataset.verdict));
    }
    if (onward) table.move(1);
  }
  const keys = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const plain = target.matches("input[type=radio], input[type=range]"); // which use arrows alone
    if (target.matches("audio, input") && !(plain && key.length === 1)) return;
    const verdict = Object.keys(VERDICTS).find((name) => VERDICTS[name] === key);
    if (key in keys) table.move(keys[key]);
    else if (!verdict && key !== "c") return;
    else if (table.state.current < 0) table.move(1); // the first key shows which row is meant
    else decide(verdict, Boolean(verdict));
    event.preventDefault();
  });
  at("decisions").addEventListener("click", () => {
    const lines = [...review.decisions].sort(([a], [b]) => a - b).map((pair) => pair.join(","));
    save(["row,decision", ...lines], "decisions.csv");
  });
  at("cleaned").addEventListener("click", () => {
    const keep = (row) => {
      const verdict = data.decisions.get(row);
      if (verdict === "wrong" || data.gaps.out_of_step?.has(row) || data.texts.reason?.[row]) return false;
      return verdict === "right" || !data.suspect[row];
    };
    const rows = Array.from(data.rank, (_, row) => row).filter(keep);
    save(cleanedLines(data, rows), "kept.csv");
  });
}
