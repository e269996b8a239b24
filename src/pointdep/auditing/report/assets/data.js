"use strict";

// Numbers come as base64 of little-endian 32-bit values.
function unpack(packed) {
  const text = atob(packed.base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return packed.type === "f4" ? new Float32Array(bytes.buffer) : new Int32Array(bytes.buffer);
}

// The rows: columns by name, columns with gaps as maps, and what is shown of x and y.
function readData() {
  const raw = JSON.parse(document.getElementById("data").textContent);
  const data = { ...raw, gaps: {}, better_label: new Map(Object.entries(raw.better_label)) };
  for (const [name, packed] of Object.entries(raw.columns)) data[name] = unpack(packed);
  for (const [name, packed] of Object.entries(raw.gaps)) {
    const rows = unpack(packed.rows);
    const values = unpack(packed.values);
    data.gaps[name] = new Map(Array.from(rows, (row, i) => [row, values[i]]));
  }
  data.highest = data.pmi.reduce((most, pmi) => (pmi > most && pmi < Infinity ? pmi : most), -Infinity);
  data.suspect = new Uint8Array(raw.rows);
  for (const row of unpack(raw.suspects)) data.suspect[row] = 1;
  data.lower = { x: lowered(raw.x), y: lowered(raw.y) };
  return data;
}

// Made when first asked for: a page that nobody searches does not pay for it.
function lowered(texts) {
  let made = null;
  return () => (made ??= texts ? texts.map((text) => text.toLowerCase()) : null);
}
