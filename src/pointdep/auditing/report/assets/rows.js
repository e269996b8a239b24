// What one row looks like. Text of the data reaches the page as textContent only.
function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function cell(className, label) {
  const made = element("td", className);
  made.setAttribute("role", "cell");
  made.dataset.label = label;
  return made;
}

function numberCell(label, text) {
  const made = cell("number", label);
  made.append(element("span", "", text));
  return made;
}

function probability(value) {
  if (Number.isNaN(value)) return "–";
  return value < 0.001 ? "<0.001" : value.toFixed(3);
}

function picture(address, description) {
  const made = element("img");
  made.alt = description;
  made.addEventListener("load", () => {
    if (Math.max(made.naturalWidth, made.naturalHeight) < 48) made.className = "pixels";
  });
  made.src = address;
  return made;
}

function sound(address, description) {
  const made = element("audio");
  made.controls = true;
  made.preload = "none";
  made.setAttribute("aria-label", description);
  made.src = address;
  return made;
}

// x or y of a row, as the person knows it.
function shownAs(data, side, row) {
  const made = element("div");
  const [kind, number] = data.media[side][row] ?? ["", -1];
  const content = data.media.contents[number];
  const description = `${side} of row ${row}`;
  if (kind === "image") made.append(picture(content, description));
  if (kind === "audio") made.append(sound(content, description));
  const text = data[side] ? data[side][row] : "";
  if (text) {
    // Of a file its name in one line; where it lies, on pointing at it.
    const file = data.has_media[side];
    const shown = element("span", file ? "text file" : "text", file ? text.split(/[\\/]/).at(-1) : text);
    if (file) shown.title = text;
    shown.dir = "auto";
    made.append(shown);
  }
  if (kind === "said") made.append(element("span", "said", content));
  if (!kind && data.has_media[side]) made.append(element("span", "said", "not in this page"));
  if (!made.childNodes.length) made.append(element("span", "said", data[side] ? "empty" : `row ${row}`));
  return made;
}

// No pair of the data can vouch for a PMI beyond that of all rows.
function partnerPmi(data, row) {
  const pmi = data.gaps.better_partner_pmi.get(row);
  if (pmi === undefined) return "";
  return pmi > data.highest ? `, PMI > ${data.highest.toFixed(2)}` : `, PMI ${pmi.toFixed(2)}`;
}

function notesOf(data, row) {
  const notes = [];
  const say = (text) => notes.push(element("p", "", text));
  const { swapped_with, duplicate_of, better_partner } = data.gaps;
  if (data.texts.reason?.[row]) say(`left out: ${data.texts.reason[row]}`);
  if (swapped_with.has(row)) say(`may be swapped with row ${swapped_with.get(row)}`);
  if (duplicate_of.has(row)) say(`near-duplicate of row ${duplicate_of.get(row)}`);
  if (data.gaps.out_of_step?.has(row)) say(`out of step: belongs to y of row ${data.gaps.out_of_step.get(row)}`);
  if (data.texts.why?.[row]) {
    say("against it: ");
    notes.at(-1).append(element("span", "why", data.texts.why[row]));
  }
  const how = partnerPmi(data, row);
  if (data.better_label.has(String(row))) {
    say("better label: ");
    notes.at(-1).append(element("strong", "", data.better_label.get(String(row))), how);
  } else if (better_partner.has(row)) {
    const partner = better_partner.get(row);
    say(`better partner: y of row ${partner}${how}`);
    if (data.y || data.has_media.y) notes.push(shownAs(data, "y", partner));
  }
  return notes;
}

function rowElement(data, row) {
  const made = element("tr");
  made.setAttribute("role", "row");
  made.dataset.row = row;
  const pmi = numberCell("PMI", Number.isNaN(data.pmi[row]) ? "–" : data.pmi[row].toFixed(2));
  if (data.pmi[row] < 0) pmi.classList.add("below");
  if (!Number.isNaN(data.stderr[row])) {
    pmi.firstChild.append(element("span", "error", ` ± ${data.stderr[row].toFixed(2)}`));
  }
  const sides = ["x", "y"].map((side) => {
    const side_cell = cell("shown", side);
    side_cell.append(shownAs(data, side, row));
    return side_cell;
  });
  const notes = cell("notes", "Note");
  const said = notesOf(data, row);
  if (said.length) {
    const together = element("div");
    together.append(...said);
    notes.append(together);
  }
  made.append(
    numberCell("Rank", String(data.rank[row])),
    numberCell("Row", String(row)),
    ...sides,
    pmi,
    numberCell("Chance", probability(data.posterior[row])),
    numberCell("q", probability(data.q_value[row])),
    notes,
    reviewCell(data, row),
  );
  return made;
}
