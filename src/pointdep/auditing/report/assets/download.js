// Rows as files, made in the browser. A spreadsheet would run a text that begins like a formula.
const harmless = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function shownLines(data, rows) {
  const number = (value) => (value === undefined || Number.isNaN(value) ? "" : String(value));
  const gaps = Object.keys(data.gaps);
  const numbers = ["rank", "pmi", "stderr", "posterior", "q_value"];
  const sides = ["x", "y"].filter((side) => data[side]);
  const labels = data.better_label.size ? ["better_label"] : [];
  const why = data.texts.why ? ["why"] : [];
  const lines = [["row", ...sides, ...numbers, "suspect", ...gaps, ...labels, ...why].join(",")];
  for (const row of rows) {
    lines.push(
      [
        row,
        ...sides.map((side) => quoted(harmless(data[side][row]))),
        ...numbers.map((name) => number(data[name][row])),
        data.suspect[row] ? "True" : "False",
        ...gaps.map((name) => number(data.gaps[name].get(row))),
        ...labels.map(() => quoted(harmless(data.better_label.get(String(row)) ?? ""))),
        ...why.map(() => quoted(harmless(data.texts.why[row] ?? ""))),
      ].join(","),
    );
  }
  return lines;
}

function cleanedLines(data, rows) {
  const sides = ["x", "y"].filter((side) => data[side]);
  const text = (side, row) => quoted(harmless(data[side][row]));
  const lines = rows.map((row) => [row, ...sides.map((side) => text(side, row))].join(","));
  return [["row", ...sides].join(","), ...lines];
}

function save(lines, name) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
